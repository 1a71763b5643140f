"""No dag: what is wrong in a definition file is shown by Airflow as an import error, and all other dags stay."""

from tally.base.errors import DefinitionError
from tally.catalog.load import catalogue

faults = catalogue().broken
if faults:
    raise DefinitionError("\n".join(str(fault) for _, fault in sorted(faults.items())))
