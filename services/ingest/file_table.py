"""The rows of the route table about files."""

from contracts.api import ArtifactSummary, UploadCreate
from services.ingest.handlers.artifacts import ArtifactHandler
from services.ingest.handlers.uploads import UploadHandlers
from services.ingest.routes import IF_NONE_MATCH, Parameter, Route
from services.ingest.views import schemas


def artifact_routes(artifacts: ArtifactHandler) -> tuple[Route, ...]:
    """Return the routes of files; the handler checks key or signature itself."""
    return (
        Route(
            "GET", "/v1/artifacts/{id}", artifacts.get_artifact, "Show what is known of a stored file.", "jobs:read",
            reply=ArtifactSummary, problems=("artifact_not_found", "data_erased", "bad_parameter", "files_unavailable"),
        ),
        Route(
            "GET", "/v1/artifacts/{id}/content", artifacts.content, "Fetch a stored file, whole or in part.",
            media_type="application/octet-stream",
            replies=(
                (200, "The content."), (206, "The part asked for."), (304, "It has not changed."),
                (302, "Where the object store serves it, for five minutes."),
            ),
            problems=(
                "unauthenticated", "missing_scope", "bad_signature", "artifact_not_found", "data_erased",
                "range_not_satisfiable", "files_unavailable",
            ),
            parameters=(
                Parameter("expires", "Of a signed link."), Parameter("sig", "Of a signed link."),
                Parameter("Range", "One range of bytes.", "header"), IF_NONE_MATCH,
            ),
        ),
    )  # fmt: skip


def upload_routes(uploads: UploadHandlers) -> tuple[Route, ...]:
    """Return the routes of files that callers send."""
    upload = "/v1/uploads/{id}"
    return (
        Route(
            "POST", "/v1/uploads", uploads.create_upload,
            "Announce a file to send; says where to PUT it.", "jobs:write",
            body=UploadCreate, reply=schemas.UploadTicket, replies=((201, "Where to send it."),),
            problems=("bad_parameter", "files_unavailable", "quota_exceeded"),
        ),
        Route(
            "PUT", upload + "/content", uploads.put, "Send the bytes, where the store does not take them itself.",
            replies=((204, "They are here; complete the upload."),), takes_file=True,
            problems=("bad_signature", "upload_not_found", "payload_too_large", "quota_exceeded", "files_unavailable"),
            parameters=(Parameter("expires", "Of the signed link."), Parameter("sig", "Of the signed link.")),
        ),
        Route(
            "POST", upload + "/complete", uploads.complete, "Check what was sent and keep it; repeating is harmless.",
            "jobs:write", reply=ArtifactSummary, replies=((200, "The stored file, ready for `inputArtifacts`."),),
            problems=(
                "upload_not_found", "upload_incomplete", "upload_rejected", "data_erased", "bad_parameter",
                "files_unavailable",
            ),
        ),
    )  # fmt: skip
