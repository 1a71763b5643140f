"""What somebody may put where a name, a time, a number or a word is asked for: by name, the same for every surface.

`values` names a file that exists only once one of them was run as a command.
"""

from __future__ import annotations

from pathlib import Path

LONG = 100_000

# Read as numbers by Python and by Java, or as times by ISO 8601: whoever gives them may get what they say.
NUMBERS = {"arabic digits", "full-width digits", "exponent", "ten to the 400th", "negative", "zero"}

COMMANDS = {
    "shell substitution": "$(touch {canary})",
    "shell backticks": "`touch {canary}`",
    "shell semicolon": "; touch {canary}",
    "shell pipe": "| touch {canary}",
    "shell newline": "x\ntouch {canary}",
    "shell and": "x && touch {canary}",
    "shell redirect": "x > {canary}",
    "python": "__import__('os').system('touch {canary}')",
    "jinja command": "{{{{ cycler.__init__.__globals__.os.popen('touch {canary}').read() }}}}",
    "spark on error": "--conf spark.driver.extraJavaOptions=-XX:OnError='touch {canary}'",
}
TEXTS = {
    "sql drop": "'; DROP TABLE desired; --",
    "sql or": "' OR 1=1 --",
    "sql union": '" UNION SELECT * FROM drivers --',
    "like": "%_%",
    "jinja sum": "{{ 7*7 }}",
    "jinja pull": "{{ ti.xcom_pull() }}",
    "jinja loop": "{% for x in range(9) %}x{% endfor %}",
    "jinja class": "{{ ''.__class__.__mro__ }}",
    "jinja open": "{{",
    "percent": "%s%n%d%(x)s",
    "format": "{0.__class__}{x}",
    "dollar": "${HOME}",
    "spark conf": "--conf spark.master=local[9]",
    "spark py-files": "--py-files=x.py",
    "spark master": "--master=local[9]",
    "option help": "--help",
    "option short": "-e",
    "option json": "--json",
    "option end": "--",
    "traversal": "../../etc/passwd",
    "absolute": "/etc/passwd",
    "traversal inside": "speed/../../x",
    "file url": "file:///etc/passwd",
    "nul": "a\0b",
    "bell": "a\x07b\x08c",
    "ansi": "\x1b[2J\x1b[31mred\x1b[0m",
    "ansi title": "\x1b]0;owned\x07",
    "c1": "a\x9b31mb",
    "carriage return": "bad\rgood",
    "right to left": "abc\u202egpj.exe",
    "zero width": "vendor_\u200btrips",
    "line separator": "a\u2028b",
    "surrogate": "a\udcffb",
    "long": "x" * LONG,
    "long digits": "9" * LONG,
    "long blank": " " * LONG,
    "long nest": "[" * LONG,
    "empty": "",
    "blank": "   ",
    "newline": "\n",
    "arabic digits": "١٢",
    "full-width digits": "１２",
    "homoglyph": "vendor_tripѕ",
    "json object": '{"a": 1}',
    "json list": "[]",
    "json null": "null",
    "json true": "true",
    "html": "<script>alert(1)</script>",
    "xml entity": '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>',
    "ldap": "*)(uid=*))(|(uid=*",
    "log line": "x\n[2026-11-01T10:00:00Z] INFO - all is well",
    "rich markup": "[/]",
    "rich link": "[link=file:///etc/passwd]click[/link][bold red]",
    "huge": "9" * 30,
    "ten to the 400th": "1" + "0" * 400,
    "exponent": "1e3",
    "too large": "1e999",
    "negative": "-1",
    "zero": "0",
    "nan": "NaN",
    "infinity": "Infinity",
    "minus infinity": "-Infinity",
    "many days": "99999999999999 days",
    "endless days": "9" * 400 + " days",
    "no such day": "9999-99-99T00:00:00Z",
    "year nought": "0000-01-01T00:00:00Z",
    "before the first": "0001-01-01T00:00:00+14:00",
    "after the last": "9999-12-31T23:59:59.999999-14:00",
    "java's last year": "+292278994-08-17T07:12:55Z",
}


def values(canary: Path) -> dict[str, str]:
    """Every value by name; those that are commands would make the file `canary`."""
    return {**{name: text.format(canary=canary) for name, text in COMMANDS.items()}, **TEXTS}
