"""Request bodies of the API: JSON that every database can keep, and nothing else."""

from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from tenants.bodies import refuse_unstorable


class StorableJsonParser(JSONParser):
    """JSON whose texts, numbers and depth can be stored and hashed; checked before anything looks at the body."""

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        """Raises ParseError (400) for malformed JSON, ApplicationError (422) for what cannot be stored."""
        try:
            data = super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise ParseError("JSON parse error - nested too deeply") from None
        refuse_unstorable(data)
        return data
