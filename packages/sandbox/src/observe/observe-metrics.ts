// Sums over all sandboxes for Prometheus; labels have few values and never contain a sandbox's id.
import type { Metrics } from "@svc/kit/metrics.ts";
import type { Counter } from "prom-client";
import type { Audit } from "./audit.ts";
import type { EventStreams } from "./event-streams.ts";
import type { Events } from "./events.ts";
import type { SandboxLogs } from "./sandbox-logs.ts";
import type { UsageLog } from "./usage.ts";

export type ObserveMetrics = { readonly cpu: Counter; readonly events: Counter<"type">; readonly deliveries: Counter<"outcome"> };

type Parts = { events: Events; streams: EventStreams; logs: SandboxLogs; usage: UsageLog; audit: Audit | undefined };

export function openObserveMetrics(metrics: Metrics, parts: () => Parts): ObserveMetrics {
  const sum = (name: `svc_${string}`, help: string, read: () => number) => metrics.gauge(name, help, [], (gauge) => gauge.set(read()));
  sum("svc_node_sandbox_memory_bytes", "Memory that running sandboxes use, at their newest samples", () => parts().usage.totals().memoryBytes);
  sum("svc_node_sandbox_memory_limit_bytes", "Memory that running sandboxes may use", () => parts().usage.totals().memoryLimitBytes);
  sum("svc_node_sandbox_disk_bytes", "Disk that running sandboxes' own layers hold", () => parts().usage.totals().diskBytes);
  sum("svc_node_sandbox_disk_limit_bytes", "Disk that running sandboxes' own layers may hold", () => parts().usage.totals().diskLimitBytes);
  sum("svc_node_sandbox_cpu_limit", "CPUs that running sandboxes may use", () => parts().usage.totals().cpuLimit);
  sum("svc_node_event_readers", "Clients that read GET /events", () => parts().streams.readers);
  sum("svc_node_events_waiting", "Events that could not be written yet", () => parts().events.unwritten);
  sum("svc_node_events_lost", "Events that were never written: the disk took none", () => parts().events.lost);
  sum("svc_node_audit_lines_lost", "Lines of the audit log that were never written", () => parts().audit?.lost ?? 0);
  sum("svc_node_audit_refusals_summarised", "Refused credentials that the audit log only counts", () => parts().audit?.uncounted ?? 0);
  metrics.gauge("svc_node_sandbox_log_entries_suppressed", "Entries left out of sandboxes' logs because of a flood, by kind", ["kind"], (gauge) => {
    for (const [kind, count] of parts().logs.suppressed) gauge.set({ kind }, count);
  });
  return {
    cpu: metrics.counter("svc_node_sandbox_cpu_seconds_total", "CPU time that sandboxes used, as far as it was sampled"),
    deliveries: metrics.counter("svc_node_webhook_deliveries_total", "Deliveries of events to webhooks: delivered, failed (repeated), skipped or lost", [
      "outcome",
    ]),
    events: metrics.counter("svc_node_events_total", "Lifecycle events, by type", ["type"]),
  };
}
