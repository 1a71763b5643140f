"""What the peers are made of is pinned exactly, as everything else is."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from bench.peers.jars import SOURCE
from bench.peers.results import here

NAME = {"m": "http://maven.apache.org/POM/4.0.0"}


def test_every_dependency_of_flink_has_one_version() -> None:
    pom = ElementTree.parse(SOURCE / "pom.xml").getroot()
    flink = pom.findtext(".//m:flink.version", "", NAME)
    written = [one.findtext("m:version", "", NAME) for one in pom.findall(".//m:dependency", NAME)]
    versions = [version.replace("${flink.version}", flink) for version in written]
    assert len(versions) > 8
    assert [version for version in versions if not re.fullmatch(r"\d+(\.\d+)+(-\d+(\.\d+)+)?", version)] == []


def test_a_page_names_the_versions_that_ran() -> None:
    versions = here().versions
    assert {"pyspark", "deltalake", "duckdb", "flink", "iceberg"} <= versions.keys()
    assert all(versions.values())
