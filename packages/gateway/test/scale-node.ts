// A node of a simulated deployment: its sandboxes, and the frames by which gateways know it.
import { CLUSTER_VERSION, type NodeLoad, type StateFrame } from "@svc/contract/cluster.ts";
import { idStart } from "@svc/contract/cluster-records.ts";

const GIB = 2 ** 30;
const TOTAL_BYTES = 64 * GIB;
const SANDBOX_MB = 512;
const SANDBOX_BYTES = SANDBOX_MB * 2 ** 20;
/** The part of its memory that a sandbox of the simulation uses. */
const USED_SHARE = 0.25;
const ID_DIGITS = 19;

export class SimulatedNode {
  readonly index: number;
  readonly id: string;
  readonly url: string;
  readonly zone: number;
  readonly maxSandboxes: number;
  readonly running = new Set<string>();
  readonly paused = new Set<string>();
  starting = 0;
  isUp = true;
  generation = 1;
  #ids = 0;

  constructor(index: number, zones: number, maxSandboxes: number) {
    this.index = index;
    this.id = `node-${String(index).padStart(5, "0")}`;
    this.url = `http://${this.id}:8000`;
    this.zone = index % zones;
    this.maxSandboxes = maxSandboxes;
  }

  /** Ids carry the node's slot, as real ones do. */
  newID(): string {
    return idStart(this.index) + (this.#ids++).toString(36).padStart(ID_DIGITS, "0");
  }

  /** Paused sandboxes are on its disk; what runs is lost. */
  losePower(): void {
    this.isUp = false;
    this.generation++;
    this.running.clear();
    this.starting = 0;
  }

  load(gateways: number): NodeLoad {
    const running = this.running.size;
    return {
      starting: this.starting,
      waiting: 0,
      pools: {},
      memory: {
        totalBytes: TOTAL_BYTES,
        availableBytes: TOTAL_BYTES - running * SANDBOX_BYTES * USED_SHARE,
        reservedBytes: running * SANDBOX_BYTES,
        usedBytes: running * SANDBOX_BYTES * USED_SHARE,
      },
      allocatedCPU: running,
      cpuPercent: 0,
      disk: { totalBytes: TOTAL_BYTES, usedBytes: 0 },
      isDraining: false,
      gateways,
    };
  }

  state(apiKey: string, seed: string, gateways: number): StateFrame {
    const base = { templateID: "base", names: ["base:default", "base"], kind: "template" as const, memoryMB: SANDBOX_MB, isReady: true };
    return {
      kind: "state",
      version: CLUSTER_VERSION,
      node: {
        nodeID: this.id,
        generation: this.generation,
        version: "0.1.0",
        commit: "",
        runsc: "",
        schema: "",
        fingerprints: { apiKey, seed },
        cpuClass: "x86-64-v3",
        labels: { zone: String(this.zone) },
        maxSandboxes: this.maxSandboxes,
        runtime: "gvisor",
        machine: { cpuCount: 16, cpuArchitecture: "x86_64", cpuFamily: "6", cpuModel: "1", cpuModelName: "simulated" },
        fetchesFromNodes: false,
        settlesNames: true,
        hasVolumes: false,
        settlesWebhooks: true,
        settlesSecrets: false,
        settlesPreviews: false,
        endsSandboxes: true,
      },
      load: this.load(gateways),
      sandboxes: { running: [...this.running], paused: [...this.paused], gone: [], leaving: [], owned: {} },
      templates: [{ ...base, builds: [], isOffered: false, createdAtMs: 0 }] as unknown as StateFrame["templates"],
      copies: [],
      names: [],
    };
  }
}
