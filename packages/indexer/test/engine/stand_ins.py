# Stand-ins for the modules that vLLM's cache classes import but do not need here, so that they run without torch and a GPU.
import importlib.abc
import importlib.machinery
import sys
import types

REAL = {
    "vllm.v1.core.kv_cache_manager", "vllm.v1.core.block_pool", "vllm.v1.core.kv_cache_coordinator",
    "vllm.v1.core.single_type_kv_cache_manager", "vllm.v1.core.kv_cache_utils", "vllm.v1.core.kv_cache_metrics",
    "vllm.v1.kv_cache_interface", "vllm.v1.kv_cache_spec_registry", "vllm.v1.request", "vllm.distributed.kv_events",
    "vllm.utils.math_utils", "vllm.utils.hashing", "vllm.v1.metrics.stats", "vllm.v1.utils", "vllm.v1.core.sched.utils",
    "vllm.sampling_params_", "vllm.v1.structured_output.request_", "vllm.v1.hisparse.layout_",
}
ABSENT = {"torch", "cbor2", "uvloop", "psutil", "numpy", "prometheus_client", "zmq_"}


class Meta(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = stand_in(name)
        setattr(cls, name, made)
        return made

    def __call__(cls, *args, **kwargs):
        # A decorator returns its function.
        if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Meta):
            return args[0]
        return super().__call__()

    def __or__(cls, other):
        return object

    __ror__ = __or__

    def __getitem__(cls, item):
        return cls

    def __iter__(cls):
        return iter(())


def stand_in(name):
    return Meta(name, (), {"__call__": lambda self, *a, **k: a[0] if len(a) == 1 and callable(a[0]) else self, "__getattr__": lambda self, n: (lambda *a, **k: None)})


class Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = stand_in(name)
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, root):
        self.root = root

    def find_spec(self, name, path, target=None):
        top = name.split(".")[0]
        if top == "vllm" and name in REAL:
            return importlib.machinery.PathFinder.find_spec(name, path)
        if top == "vllm" or top in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = Module(spec.name)
        module.__path__ = [self.root + "/" + spec.name.replace(".", "/")]
        return module

    def exec_module(self, module):
        pass


def install(root):
    sys.meta_path.insert(0, Finder(root))
