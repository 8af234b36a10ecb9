"""Request bodies of the API: JSON that every database can keep, and of which nothing is silently dropped."""

import json
from typing import IO, Any, Never

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from tenants.bodies import refuse_unstorable


class StorableJsonParser(JSONParser):
    """JSON whose texts, numbers and depth can be stored and hashed; checked before anything looks at the body."""

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        """Raises ParseError (400) for malformed JSON, ApplicationError (422) for what cannot be stored."""
        try:
            text = stream.read().decode()
            data = json.loads(text, parse_constant=_no_number, object_pairs_hook=_each_name_once)
        except RecursionError:
            raise ParseError("JSON parse error - nested too deeply") from None
        except ValueError as error:
            raise ParseError(f"JSON parse error - {error}") from error
        refuse_unstorable(data)
        return data


def _no_number(name: str) -> Never:
    raise ValueError(f"{name} is no JSON number")


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two equal names Python keeps the last: the caller would never learn which."""
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the name {name!r} occurs twice in one object")
        members[name] = value
    return members
