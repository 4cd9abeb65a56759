# SPDX-License-Identifier: Apache-2.0
"""Pages that restate code say the same as the code."""

from __future__ import annotations

import hashlib
import re
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table behind `heading`, its two head lines left out."""
    text = (ROOT / page).read_text()
    _, found, rest = text.partition(heading)
    assert found, heading
    rows = []
    for line in rest.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def enum_codes() -> list[str]:
    header = (ROOT / "include/aerokv/status.h").read_text()
    body = header.split("enum class Code", 1)[1].split("{", 1)[1].split("}", 1)[0]
    return re.findall(r"^\s*(\w+),", body, re.MULTILINE)


def test_errors_table_equals_the_enum() -> None:
    rows = table("docs/reference/errors.md", "# Errors")
    assert [row[0].strip("`") for row in rows] == enum_codes()
    assert all(row[1] for row in rows)


def test_errors_table_equals_the_python_classes() -> None:
    source = (ROOT / "python/lmcache_aerospike/errors.py").read_text()
    listing = source.split("_BY_CODE", 1)[1].split("(", 1)[1].split(")", 1)[0]
    code_of = {
        block.split("(", 1)[0]: code[1]
        for block in source.split("\nclass ")[1:]
        if (code := re.search(r'default_code.* = "(\w+)"', block))
    }
    classes = {code_of[name]: f"`{name}`" for name in re.findall(r"\w+Error", listing)}
    rows = table("docs/reference/errors.md", "# Errors")
    assert {row[0].strip("`"): row[3] for row in rows if row[3]} == classes


def test_code_names_equal_the_enum() -> None:
    source = (ROOT / "src/base/status.cc").read_text()
    pairs = re.findall(r'case Code::(\w+):\s*return "(\w+)";', source)
    assert [name for name, _ in pairs] == enum_codes()
    assert all(name == text for name, text in pairs)


def test_result_codes_equal_the_source() -> None:
    source = (ROOT / "src/wire/result.cc").read_text()
    rules = (ROOT / "src/client/faults.h").read_text()
    retries = {
        code: "" if read == "give_up" else read.replace("_", " ")
        for codes, read in re.findall(
            r'\{FaultKind::\w+, "[^"]+", \{([\d, ]+)\}, Next::(\w+)', rules
        )
        for code in codes.split(", ")
    }
    assert len(retries) > 10
    code_rows = [
        [code, name, status, retries.get(code, "")]
        for code, status, name in re.findall(r'Row\{(\d+), Code::(\w+), "([^"]+)"\}', source)
    ]
    assert len(code_rows) > 50
    assert table("docs/formats/wire.md", "## Result codes") == code_rows


def test_limits_of_the_record_page_equal_the_source() -> None:
    source = (ROOT / "src/base/limits.h").read_text()
    page = (ROOT / "docs/formats/record.md").read_text()
    key = int(re.search(r"kKeyBytesMax = (\d+)", source)[1])
    segments = int(re.search(r"kSegmentsMax = (\d+)", source)[1])
    assert f"1 to {key:,} bytes" in page
    assert f"1 to {segments:,}" in page


def worked_example() -> bytes:
    page = (ROOT / "docs/formats/record.md").read_text()
    block = page.split("## Worked example", 1)[1].split("```", 2)[1]
    data = b""
    for line in block.strip().splitlines():
        tokens = re.match(r"(?:[0-9a-f]{2,}(?: |$))+", line)
        assert tokens, line
        data += bytes.fromhex(tokens[0].replace(" ", ""))
    return data


def test_worked_record_example_is_a_valid_message() -> None:
    data = worked_example()
    assert data[:2] == b"\x02\x03"
    assert int.from_bytes(data[2:8], "big") == len(data) - 8
    field_count, op_count = struct.unpack_from(">HH", data, 26)
    at = 30
    fields: dict[int, bytes] = {}
    for _ in range(field_count):
        size, kind = struct.unpack_from(">IB", data, at)
        fields[kind] = data[at + 5 : at + 4 + size]
        at += 4 + size
    bins: dict[str, tuple[int, bytes]] = {}
    for _ in range(op_count):
        size, op, particle, _flags, name_bytes = struct.unpack_from(">IBBBB", data, at)
        assert op == 2
        name = data[at + 8 : at + 8 + name_bytes].decode()
        bins[name] = (particle, data[at + 8 + name_bytes : at + 4 + size])
        at += 4 + size
    assert at == len(data)

    key = hashlib.new("ripemd160", fields[1] + b"\x03" + b"demo|m").digest()
    assert fields[4] == key
    assert (key[0] | key[1] << 8) & 0xFFF == 2010
    assert bins["b"] == (4, b"hello, kv")
    assert bins["tot_b"] == (1, struct.pack(">q", 9))
    names = [row[0].strip("`") for row in table("docs/formats/record.md", "## Bins of the meta")]
    assert set(bins) == set(names) - {"md", "crc32", "serde", "raw_b"}


def test_version_has_the_form_that_the_build_reads() -> None:
    header = (ROOT / "include/aerokv/version.h").read_text()
    assert re.search(r'kVersion = "\d+\.\d+\.\d+"', header)
