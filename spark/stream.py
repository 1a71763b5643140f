"""The speed layer's Spark application: hosts the queries of an app. stream.py [PIPELINE...] [--until-caught-up]"""

from __future__ import annotations

import argparse
import logging
import signal
import sys

from tally.base.errors import TallyError
from tally.host import driver_log


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipelines", nargs="*")
    parser.add_argument("--until-caught-up", action="store_true")
    given = parser.parse_args()
    try:
        for name in (driver_log.DRIVER, ""):  # its own lines, and what libraries warn of
            driver_log.begin(name)
        from tally.speed.driver import Driver
        from tally.supervise.sealing import Lookout

        driver = Driver(given.pipelines, until_caught_up=given.until_caught_up, look=Lookout().turn)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(driver, "stopping", True))
        failed = driver.run()
    except TallyError as error:
        logging.getLogger(driver_log.DRIVER).error("%s", error)
        return error.exit_code
    return max((error.exit_code for error in failed), default=0)


if __name__ == "__main__":
    sys.exit(main())
