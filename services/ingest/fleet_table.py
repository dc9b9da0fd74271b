"""The rows of the route table about workers, pools and how they are scheduled."""

from contracts.admin_api import Because, PolicyPatch, WorkerDrain, WorkerModel
from services.ingest.handlers.pauses import PauseHandlers
from services.ingest.handlers.pools import PoolHandlers
from services.ingest.handlers.worker_commands import WorkerCommandHandlers
from services.ingest.handlers.workers import WorkerHandlers
from services.ingest.routes import PAGED, Parameter, Route
from services.ingest.views import service_schemas as about

_TENANT = "/admin/v1/tenants/{tenant}"


def worker_routes(workers: WorkerHandlers, commands: WorkerCommandHandlers) -> tuple[Route, ...]:
    """Return the operator's routes about workers."""
    worker = "/admin/v1/workers/{worker}"
    told = ((200, "It is so already."), (202, "The worker will hear of it."))
    wrong = ("worker_not_found", "bad_parameter")
    return (
        Route("GET", "/admin/v1/workers", workers.list_workers, "List workers.", "admin",
              reply=about.WorkerPage, problems=("bad_parameter",)),
        Route("GET", worker, workers.get_worker, "Show a worker.", "admin", reply=about.Worker, problems=wrong),
        Route("POST", worker + "/drain", commands.drain, "Let a worker finish and take nothing new.", "admin",
              body=WorkerDrain, replies=told, reply=about.Worker, problems=wrong),
        Route("POST", worker + "/undrain", commands.undrain, "Let a drained worker work again.", "admin",
              body=Because, replies=told, reply=about.Worker, problems=wrong),
        Route("POST", worker + "/load-model", commands.load_model, "Have a model in memory.", "admin",
              body=WorkerModel, replies=told, reply=about.Worker, problems=(*wrong, "model_not_found")),
        Route("POST", worker + "/evict-model", commands.evict_model, "Take a model out of memory.", "admin",
              body=WorkerModel, replies=told, reply=about.Worker, problems=(*wrong, "model_not_found")),
    )  # fmt: skip


def scheduling_routes(pools: PoolHandlers, pauses: PauseHandlers) -> tuple[Route, ...]:
    """Return the operator's routes about what is scheduled and how."""
    pool, model, policy = "/admin/v1/pools/{pool}", "/admin/v1/models/{model}", "/admin/v1/scheduler/policy"
    of_pool = (Parameter("pool", "The first pool when it is left out."),)
    return (
        Route("GET", "/admin/v1/pools", pools.list_pools, "List pools.", "admin",
              reply=about.PoolPage, problems=("bad_cursor", "bad_parameter"), parameters=PAGED),
        Route("GET", pool, pools.get_pool, "Show a pool.", "admin",
              reply=about.Pool, problems=("pool_not_found", "bad_parameter")),
        Route("GET", policy, pools.get_policy, "Show a pool's scheduling policy.", "admin",
              reply=about.Policy, problems=("pool_not_found", "bad_parameter"), parameters=of_pool),
        Route("PATCH", policy, pools.patch_policy, "Change a pool's scheduling policy.", "admin",
              body=PolicyPatch, reply=about.Policy, parameters=of_pool,
              problems=("pool_not_found", "bad_parameter", "version_mismatch")),
        Route("POST", pool + "/pause", pauses.pause_pool, "Offer nothing of a pool any more.", "admin",
              body=Because, reply=about.Pool, problems=("pool_not_found", "version_mismatch")),
        Route("POST", pool + "/resume", pauses.resume_pool, "Serve a pool again.", "admin",
              body=Because, reply=about.Pool, problems=("pool_not_found", "version_mismatch")),
        Route("POST", _TENANT + "/pause", pauses.pause_tenant, "Offer nothing of a tenant any more.", "admin",
              body=Because, reply=about.Tenant, problems=("tenant_not_found", "version_mismatch")),
        Route("POST", _TENANT + "/resume", pauses.resume_tenant, "Serve a tenant again.", "admin",
              body=Because, reply=about.Tenant, problems=("tenant_not_found", "version_mismatch")),
        Route("POST", model + "/pause", pauses.pause_model, "Offer nothing of a model any more.", "admin",
              body=Because, reply=about.PausedModel, problems=("model_not_found", "version_mismatch")),
        Route("POST", model + "/resume", pauses.resume_model, "Serve a model again.", "admin",
              body=Because, reply=about.PausedModel, problems=("model_not_found", "version_mismatch")),
    )  # fmt: skip
