// Reads the segments from the master's HTTP: their names, sizes and state.
import { type Arguments, ask } from "./arguments.ts";

export type SegmentDetail = {
  segment_name: string;
  segment_id: string;
  client_id: string;
  base_address: string;
  size_bytes: number;
  te_endpoint: string;
  protocol: string;
  status: string;
  allocator_used_bytes: number;
  allocator_usage_percent: number;
  readable?: boolean;
  awaited?: boolean;
};

export async function segmentDetails(args: Arguments): Promise<SegmentDetail[]> {
  return ((await (await ask(args, "/get_segments_detail")).json()) as { segments: SegmentDetail[] }).segments;
}
