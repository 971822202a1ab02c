"""Keys and certificates of one cluster: one authority, one pair per identity, made with the openssl program.

They live as long as the cluster's folder and are good for nothing else.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .say import Problem

DAYS = "365"


@dataclass(frozen=True)
class Identity:
    """A name for one party. The organisation is what Kubernetes reads as its group."""

    file: str
    common_name: str
    organisation: str = ""
    # subjectAltName entries, "IP:127.0.0.1" or "DNS:localhost"; empty for a client.
    names: tuple[str, ...] = ()


class Authority:
    """The cluster's certificate authority, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.crt"
        self._key = folder / "ca.key"

    def create(self) -> None:
        """A new authority."""
        config = self.folder / "ca.cnf"
        config.write_text(
            "[req]\ndistinguished_name=name\nx509_extensions=authority\n[name]\n[authority]\n"
            "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign,digitalSignature\n"
            "subjectKeyIdentifier=hash\n"
        )
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        subject = ["-subj", "/CN=lanekeeper-dev-cluster", "-days", DAYS, "-config", str(config)]
        _openssl("req", "-x509", *new_key, "-keyout", str(self._key), "-out", str(self.certificate), *subject)

    def issue(self, identity: Identity) -> tuple[Path, Path]:
        """A certificate and its key, good for both ends of a connection."""
        certificate = self.folder / f"{identity.file}.crt"
        key = self.folder / f"{identity.file}.key"
        request = self.folder / f"{identity.file}.csr"
        extensions = self.folder / f"{identity.file}.cnf"
        lines = ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature"]
        lines.append("extendedKeyUsage=serverAuth,clientAuth")
        if identity.names:
            lines.append(f"subjectAltName={','.join(identity.names)}")
        extensions.write_text("\n".join(lines) + "\n")
        organisation = f"/O={identity.organisation}" if identity.organisation else ""
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key)]
        config = ["-config", str(self.folder / "ca.cnf")]
        _openssl(
            "req", "-new", *new_key, "-out", str(request), "-subj", f"{organisation}/CN={identity.common_name}", *config
        )
        signer = ["-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial", "-days", DAYS]
        _openssl("x509", "-req", "-in", str(request), *signer, "-extfile", str(extensions), "-out", str(certificate))
        request.unlink()
        extensions.unlink()
        return certificate, key

    def signing_key(self, file: str) -> None:
        """A key pair that signs tokens, not certificates."""
        key = str(self.folder / f"{file}.key")
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", key)
        _openssl("pkey", "-in", key, "-pubout", "-out", str(self.folder / f"{file}.pub"))


def check() -> None:
    """A clear word before anything is started."""
    if shutil.which("openssl") is None:
        raise Problem("the program `openssl` is needed for the cluster's certificates (apt-get install openssl)")


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Problem(f"openssl {arguments[0]} failed: {done.stderr.strip()[-500:]}")
