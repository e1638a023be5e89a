"""Address and credentials of the API server: where they are found, and how they stay valid.

Searched in this order: the named kubeconfig, ``$KUBECONFIG``, the service account of the pod we run
in, ``~/.kube/config``. The official ``kubernetes`` package reads these formats, including exec
plugins; it is imported only when needed, and nothing else of it is used.

``AccessCache`` renews the credentials each minute, because tokens of service accounts are rotated
on disk, and loads them again after the server has refused them. ``load`` starts from scratch and
may run an exec plugin. ``renew`` is cheap: it reads token files again and runs an exec plugin only
when its token is about to expire. Both may block (files, exec plugins), so the cache calls them in
a thread. While credentials cannot be renewed the last ones are kept: they may still be valid.
"""

import asyncio
import importlib
import logging
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from msgspec import Struct

from kai_py.watch.errors import CredentialsError

logger = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RENEW_SECONDS = 60.0
RELOAD_SECONDS = 5.0
"""After refusals the credentials are loaded at most this often.

Otherwise a server that refuses everything would make us run an exec plugin in a loop.
"""


class ServerAccess(Struct, frozen=True):
    """Address and credentials of a server at one moment."""

    server: str
    """Base URL without a trailing slash."""
    authorization: str = ""
    """Value of the Authorization header, empty for none."""
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    """Name to expect in the server's certificate, where it is not the host of ``server``."""
    proxy: str = ""


class Credentials(Protocol):
    """A source of credentials, for as long as the process runs."""

    def load(self) -> ServerAccess:
        """Read everything again; raises CredentialsError."""

    def renew(self) -> ServerAccess:
        """Read what may have expired; raises CredentialsError."""


class Anonymous(Struct, frozen=True):
    """No credentials: the embedded cluster on loopback, or a ``kubectl proxy``."""

    server: str

    def load(self) -> ServerAccess:
        """The server's address."""
        return ServerAccess(server=self.server.rstrip("/"))

    renew = load


class ServiceAccount:
    """The service account of the pod that this process runs in."""

    def __init__(
        self, directory: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._directory = directory
        self._environment = environment

    def load(self) -> ServerAccess:
        """Read address, certificate authority and token."""
        config = _kubernetes("kubernetes.config")
        configuration = _kubernetes("kubernetes.client").Configuration()
        loader = _kubernetes("kubernetes.config.incluster_config").InClusterConfigLoader(
            token_filename=str(self._directory / "token"),
            cert_filename=str(self._directory / "ca.crt"),
            environ=self._environment,
        )
        try:
            loader.load_and_set(configuration)
        except (config.ConfigException, OSError) as error:
            raise CredentialsError(f"service account in {self._directory}: {error}") from error
        return _access(configuration)

    renew = load


class Kubeconfig:
    """A kubeconfig file, or several separated as in ``$KUBECONFIG``."""

    def __init__(self, files: str, context: str = "") -> None:
        self._files = files
        self._context = context
        self._configuration: Any = None
        self._token_file: Path | None = None

    def load(self) -> ServerAccess:
        """Read the files and run the exec plugin, if there is one."""
        module = _kubernetes("kubernetes.config.kube_config")
        configuration = _kubernetes("kubernetes.client").Configuration()
        # Without a base path, relative paths start at the file that holds them, as in kubectl.
        try:
            config = module.KubeConfigMerger(self._files).config
            if config is not None:
                loader = module.KubeConfigLoader(
                    config_dict=config,
                    active_context=self._context or None,
                    config_base_path=None,
                )
                with _plugin_errors():
                    loader.load_and_set(configuration)
                self._token_file = _token_file(config, self._context)
        # The loader does not check what it reads: a malformed file may raise anything.
        except Exception as error:
            raise CredentialsError(f"kubeconfig {self._files}: {self._reason(error)}") from error
        if config is None:
            raise CredentialsError(f"kubeconfig {self._files}: no such file")
        self._configuration = configuration
        return self.renew()

    def renew(self) -> ServerAccess:
        """Read the token file again, or ask the exec plugin if its token is about to expire."""
        try:
            if self._token_file is not None:
                token = self._token_file.read_text(encoding="utf-8").strip()
                return _access(self._configuration, authorization=f"Bearer {token}")
            with _plugin_errors():
                return _access(self._configuration)
        except (OSError, UnicodeDecodeError) as error:
            reason = f"tokenFile: {self._reason(error)}"
            raise CredentialsError(f"kubeconfig {self._files}: {reason}") from error
        except (_PluginError, CredentialsError) as error:
            raise CredentialsError(f"kubeconfig {self._files}: {error}") from error

    def _reason(self, error: Exception) -> str:
        """What is wrong, with the name of the file unless it is a kubeconfig."""
        named = error.filename if isinstance(error, OSError) else None
        is_other = named is not None and str(named) not in self._files.split(os.pathsep)
        return f"{named}: {_reason(error)}" if is_other else _reason(error)


def find_credentials(
    kubeconfig: str = "", context: str = "", environment: Mapping[str, str] = os.environ
) -> Credentials:
    """Choose the source of credentials in the module's order; raises CredentialsError if none."""
    named = kubeconfig or environment.get("KUBECONFIG", "")
    if named:
        return Kubeconfig(named, context)
    if environment.get("KUBERNETES_SERVICE_HOST") and not context:
        return ServiceAccount(environment=environment)
    default = Path("~/.kube/config").expanduser()
    if not default.exists():
        raise CredentialsError(
            "no credentials: $KUBECONFIG is not set, this process does not run in a pod, and "
            f"{default} does not exist; name a kubeconfig"
        )
    return Kubeconfig(str(default), context)


class _PluginError(Exception):
    """An exec plugin gave no credentials."""


@contextmanager
def _plugin_errors() -> Iterator[None]:
    """Raise what the package only logs before it goes on without credentials."""
    messages: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        messages.append(record.getMessage().removeprefix("exec: "))
        return False

    root = logging.getLogger()
    root.addFilter(keep)
    try:
        yield
    finally:
        root.removeFilter(keep)
    if messages:
        raise _PluginError(f"the exec plugin of the user fails: {'; '.join(messages)}")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    if isinstance(error, AttributeError | TypeError):
        return "is not a kubeconfig"  # their texts are about Python
    if isinstance(error, LookupError):
        return f"is not a kubeconfig: {error}"
    return str(error)


def _kubernetes(module: str) -> Any:
    return importlib.import_module(module)


def _token_file(config: Any, context: str) -> Path | None:
    """The ``tokenFile`` of the current user; a relative path starts at the file naming it."""
    chosen = config["contexts"].get_with_name(context or config["current-context"])["context"]
    name = chosen.safe_get("user")
    entry = config["users"].get_with_name(name, safe=True) if name else None
    if entry is None or "tokenFile" not in entry["user"]:
        return None
    directory = Path(entry.path or ".").parent
    return directory / str(entry["user"]["tokenFile"])


def _access(configuration: Any, authorization: str = "") -> ServerAccess:
    """The access that a loaded configuration describes; raises CredentialsError."""
    secure = configuration.host.startswith("https")
    token = configuration.get_api_key_with_prefix("BearerToken") or ""
    return ServerAccess(
        server=configuration.host.rstrip("/"),
        authorization=authorization or token.strip(),
        tls=_tls(configuration) if secure else None,
        server_name=configuration.tls_server_name or "",
        proxy=_proxy(configuration),
    )


class _TlsFiles(Struct, frozen=True):
    authority: str | None
    certificate: str | None
    key: str | None
    verify: bool
    modified: tuple[int, ...]


def _tls(configuration: Any) -> ssl.SSLContext:
    paths = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    try:
        return _tls_context(
            _TlsFiles(
                *paths,
                verify=bool(configuration.verify_ssl),
                # Part of the cache key: rotated files get a new context.
                modified=tuple(os.stat(path).st_mtime_ns if path else 0 for path in paths),
            )
        )
    # Between the writes of a certificate and its key they don't match.
    except OSError as error:
        named = ", ".join(path for path in paths if path)
        raise CredentialsError(f"certificates ({named}): {_reason(error)}") from error


@lru_cache(maxsize=8)
def _tls_context(files: _TlsFiles) -> ssl.SSLContext:
    """The context for these files, cached while they stay the same, so connections are reused."""
    context = ssl.create_default_context(cafile=files.authority)
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if files.certificate:
        context.load_cert_chain(files.certificate, files.key)
    return context


def _proxy(configuration: Any) -> str:
    host = urlsplit(configuration.host).hostname or ""
    if not configuration.proxy or proxy_bypass(host):
        return ""
    excepted = str(configuration.no_proxy or "").split(",")
    return "" if any(_is_in(host, each.strip()) for each in excepted) else str(configuration.proxy)


def _is_in(host: str, entry: str) -> bool:
    """Whether an entry of NO_PROXY that ``proxy_bypass`` doesn't support covers ``host``.

    These are networks, by which the addresses of Services are usually excepted, and
    ``*.example.com``.
    """
    if entry.startswith("*."):
        return host.endswith(entry[1:])
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        return False


class AccessCache:
    """The current access to one server."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._lock = asyncio.Lock()
        self._access: ServerAccess | None = None
        self._renew_at = 0.0
        self._reload_at = 0.0

    async def current(self) -> ServerAccess:
        """The access to use; raises CredentialsError if there never was one."""
        if self._access is not None and time.monotonic() < self._renew_at:
            return self._access
        async with self._lock:
            access = self._access
            if access is None:
                return self._store(await asyncio.to_thread(self._credentials.load))
            if time.monotonic() >= self._renew_at:
                return self._store(await self._renewed(access))
            return access

    async def reload(self) -> bool:
        """Load the credentials again after a refusal; True if another attempt is worthwhile."""
        refused = self._access
        async with self._lock:
            # Another call has reloaded them while this one waited for the lock.
            if self._access != refused:
                return True
            if time.monotonic() < self._reload_at:
                return False
            self._reload_at = time.monotonic() + RELOAD_SECONDS
            try:
                self._store(await asyncio.to_thread(self._credentials.load))
            except CredentialsError as error:
                logger.warning("credentials were rejected and cannot be read again: %s", error)
            return self._access != refused

    async def _renewed(self, last: ServerAccess) -> ServerAccess:
        try:
            return await asyncio.to_thread(self._credentials.renew)
        except CredentialsError as error:
            logger.warning("keeping the last credentials: %s", error)
            return last

    def _store(self, access: ServerAccess) -> ServerAccess:
        self._access = access
        self._renew_at = time.monotonic() + RENEW_SECONDS
        return access
