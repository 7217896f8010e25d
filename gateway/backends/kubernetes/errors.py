"""What a Kubernetes API server can answer instead of what was asked, one class for each thing that a caller would do about it.

A message must never carry what a request carried: no token, no certificate, nothing that a Secret holds.
"""

from __future__ import annotations

import json
from typing import Any

from ...protocol.errors import ElasticError

Json = dict[str, Any]
_WAITS_FOR_QUOTA = ("exceeded quota", "status unknown for quota")  # the second: the quota's usage isn't counted yet


class ApiError(ElasticError):
    """The API server didn't do what was asked; ``code`` is its HTTP status, None where it gave none."""

    reason = "api_error"
    code: int | None = None


class ApiUnavailable(ApiError):
    """No answer, or none that counts: no connection, a 5xx, a time limit, too many requests. The same may work in a moment;
    whether a write has been carried out is not known."""

    reason = "api_unavailable"


class ApiDenied(ApiError):
    """Refused (401, 403). ``quota``: a ResourceQuota stands in the way, so the same may work once others have given something back."""

    reason = "api_denied"
    quota = False


class ApiConflict(ApiError):
    """The object exists already, or isn't any more what the caller takes it for (409)."""

    reason = "api_conflict"


class ApiMissing(ApiError):
    """There is no such object (404)."""

    reason = "api_missing"


class ApiExpired(ApiError):
    """The resource version is too old, or newer than anything the server knows (410): list again."""

    reason = "api_expired"


class ApiInvalid(ApiError):
    """The server doesn't accept the request as sent (400, 422 and the rest of 4xx); repeating it is no use."""

    reason = "api_invalid"


def from_status(code: int, body: bytes | Json, doing: str, *, secret: bool = False, anonymous: bool = False) -> ApiError:
    """The error for an answer of the API server with HTTP status ``code`` and a ``Status`` object (or any text) as its body.

    ``doing``: what was asked, for people ("create pods in ns"). ``secret``: the request held secrets, so that the server's own
    sentence, which may quote them, is replaced by the names of the fields. ``anonymous``: no credentials were sent.
    """
    status = _status(body)
    details = status.get("details")
    causes = [cause for cause in (details.get("causes") or [] if isinstance(details, dict) else []) if isinstance(cause, dict)]
    said = str(status.get("message") or "").strip()[:2000] or f"HTTP {code}"
    if secret and code in (400, 422):
        fields = ", ".join(f"{cause.get('field', '')} ({cause.get('reason', '')})" for cause in causes)
        said = f"HTTP {code}{f', about {fields}' if fields else ''}; the rest isn't shown because it may quote the Secret"
    if code == 401:
        error: ApiError = ApiDenied(f"Kubernetes doesn't accept our credentials, so it didn't {doing} ({said}): {_renew(anonymous)}")
    elif code == 403:
        error = _denied(said, doing, anonymous)
    elif code == 404:
        error = ApiMissing(f"Kubernetes couldn't {doing}: {said}. Somebody has deleted it, or its name or namespace is wrong.")
    elif code == 409:
        error = ApiConflict(f"Kubernetes didn't {doing}: {said}. Somebody else was first: read it again and decide anew.")
    elif code == 410 or any(cause.get("reason") == "ResourceVersionTooLarge" for cause in causes):
        error = ApiExpired(f"Kubernetes couldn't {doing} from that resource version: {said}. List again.")
    elif code == 429 or code >= 500:
        error = ApiUnavailable(f"Kubernetes couldn't {doing} now: {said} (HTTP {code}). Try again in a moment; the server's log says why.")
    else:
        error = ApiInvalid(f"Kubernetes doesn't accept the request to {doing}: {said}. Correct the profile or setting behind it.")
    error.code = code
    return error


def _status(body: bytes | Json) -> Json:
    if isinstance(body, dict):
        return body
    try:
        status = json.loads(body)
    except ValueError:  # from a proxy on the way
        return {"message": body.decode(errors="replace")[:200]}
    return status if isinstance(status, dict) else {}


def _denied(said: str, doing: str, anonymous: bool) -> ApiDenied:
    if any(words in said for words in _WAITS_FOR_QUOTA):
        error = ApiDenied(
            f"Kubernetes didn't {doing}: {said}. Give back something in that namespace or have its ResourceQuota raised.",
            reason="quota_exceeded",
        )
        error.quota = True
        return error
    what = _renew(anonymous) if anonymous else "The gateway's role lacks that right, or a policy of the cluster forbids it: ask its admin."
    return ApiDenied(f"Kubernetes refused to {doing}: {said}. {what}")


def _renew(anonymous: bool) -> str:
    if anonymous:
        return "None were sent: does the kubeconfig's context have a user, and does the user's login command work?"
    return "Renew the token or certificate, or log in again, and check that it is meant for this cluster."
