"""TLS of HTTP jobs: which certificates are believed, and which one we show ourselves.

Contexts are made once for each set of certificates and kept for as long as they are used: making one reads every
certificate that the machine trusts. Connections of different contexts are never shared.
"""

import asyncio
import hashlib
import os
import ssl
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hourhand.model.errors import BadConfiguration

CONTEXTS_MAX: Final = 64
"""Those used least recently go first; each takes the memory of its certificates."""


class BadCertificate(Exception):
    """Certificates or a key of the payload cannot be used."""


class TlsContexts:
    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file = ca_file
        self.usual: ssl.SSLContext | bool = True
        """Of calls that ask for nothing else."""
        self._contexts: OrderedDict[bytes, ssl.SSLContext] = OrderedDict()

    async def open(self) -> None:
        """Reads the operator's own certificates. Raises BadConfiguration."""
        if self._ca_file is not None:
            try:
                self.usual = await asyncio.to_thread(self._trusted_here)
            except (OSError, ssl.SSLError) as error:
                raise BadConfiguration([f"kinds.http_ca_file: {self._ca_file} cannot be used: {error}"]) from None

    async def of(self, payload: Mapping[str, Any]) -> ssl.SSLContext | bool:
        """What a call is made with. Raises BadCertificate."""
        tls, verify = payload.get("tls"), payload.get("verify_tls", True)
        if not tls:
            return self.usual if verify else False
        ca, cert, key = tls.get("ca"), tls.get("cert"), tls.get("key", "")
        mark = hashlib.sha256(repr((ca, cert, key, verify)).encode("utf-8", "replace")).digest()
        context = self._contexts.get(mark)
        if context is None:
            context = await asyncio.to_thread(self._made, ca, cert, key, verify)
            self._contexts[mark] = context
            while len(self._contexts) > CONTEXTS_MAX:
                self._contexts.popitem(last=False)
        else:
            self._contexts.move_to_end(mark)
        return context

    def _trusted_here(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._ca_file is not None:
            context.load_verify_locations(self._ca_file)
        return context

    def _made(self, ca: str | None, cert: str | None, key: str, verify: bool) -> ssl.SSLContext:
        try:
            # A CA that the job names is the only one that it believes: others could sign for its server too.
            context = ssl.create_default_context(cadata=ca) if ca is not None else self._trusted_here()
            if not verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if cert is not None:
                _show(context, cert, key)
        except (ssl.SSLError, ValueError, OSError) as error:
            said = getattr(error, "reason", None) or type(error).__name__
            raise BadCertificate(f"the certificates in tls cannot be used: {said}") from None
        return context


def _show(context: ssl.SSLContext, cert: str, key: str) -> None:
    """Lets the context prove who we are. The library reads files only; this one is in memory and has no name."""
    file = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        os.write(file, f"{cert}\n{key}\n".encode("utf-8", "replace"))
        context.load_cert_chain(f"/proc/self/fd/{file}", password="")  # no password: else it asks the terminal
    finally:
        os.close(file)
