// The KV cache groups that vLLM's planner creates for the models in common use.
import type { EngineGroup } from "./engine-cache.ts";

export const engineModels: readonly { name: string; groups: readonly EngineGroup[] }[] = [
  { name: "one group of full attention", groups: [{ kind: "full" }] },
  { name: "a sliding window and full attention (gpt-oss)", groups: [{ kind: "sliding", window: 128 }, { kind: "full" }] },
  {
    name: "three sliding windows and full attention (Gemma 3)",
    groups: [{ kind: "sliding", window: 100 }, { kind: "sliding", window: 100 }, { kind: "sliding", window: 100 }, { kind: "full" }],
  },
  { name: "states of linear attention and MLA (Kimi)", groups: [{ kind: "mamba" }, { kind: "mamba" }, { kind: "mla" }] },
  { name: "states only at chosen points, and full attention", groups: [{ kind: "mamba", mode: "align" }, { kind: "full" }] },
  { name: "a window, states and full attention", groups: [{ kind: "sliding", window: 64 }, { kind: "mamba" }, { kind: "full" }] },
  { name: "only a sliding window", groups: [{ kind: "sliding", window: 64 }] },
];
