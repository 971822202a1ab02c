"""A very small client of the API server, for readiness and the few objects that the cluster needs itself."""

import http.client
import json
import ssl
import urllib.parse
from pathlib import Path

MANAGER = "lanekeeper-dev-cluster"


class Api:
    """Requests as the administrator."""

    def __init__(self, server: str, authority: Path, certificate: Path, key: Path) -> None:
        self.server = urllib.parse.urlsplit(server)
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(str(certificate), str(key))

    def request(self, method: str, path: str, body: dict | None = None, timeout: float = 5.0) -> tuple[int, str]:
        """The status and the text of the answer; status 0 and the reason when there was none."""
        connection = http.client.HTTPSConnection(
            self.server.hostname, self.server.port, timeout=timeout, context=self._context
        )
        headers = (
            {"Content-Type": "application/apply-patch+yaml"}
            if method == "PATCH"
            else {"Content-Type": "application/json"}
        )
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error) or type(error).__name__
        finally:
            connection.close()

    def ready(self) -> bool:
        """Whether the server says that it is ready."""
        return self.request("GET", "/readyz")[0] == 200

    def get(self, path: str) -> dict | None:
        """An object, or none when it is not there (or the server does not answer)."""
        status, text = self.request("GET", path)
        return json.loads(text) if status == 200 else None

    def apply(self, path: str, manifest: dict) -> tuple[int, str]:
        """Server-side apply of one object."""
        return self.request("PATCH", f"{path}?fieldManager={MANAGER}&force=true", manifest, timeout=30.0)
