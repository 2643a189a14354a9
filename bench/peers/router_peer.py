# A peer of svc router: sglang-router or vllm-router, started by its own Python classes. Arguments: which one, its port, a port for its
# metrics, its policy, and the URLs of the engines.
import sys

which, port, metrics_port, policy, *urls = sys.argv[1:]
if which == "sglang-router":
    from sglang_router.router import Router
    from sglang_router.router_args import RouterArgs
else:
    from vllm_router.router import Router
    from vllm_router.router_args import RouterArgs
args = RouterArgs(
    worker_urls=urls,
    host="127.0.0.1",
    port=int(port),
    policy=policy,
    prometheus_port=int(metrics_port),
    prometheus_host="127.0.0.1",
    log_level="warn",
    worker_startup_check_interval=1,
)
Router.from_args(args).start()
