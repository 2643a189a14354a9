// Reads the segments from the master's HTTP: their names, sizes and state.
import { ask, type Words } from "./words.ts";

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

export async function segmentDetails(words: Words): Promise<SegmentDetail[]> {
  return ((await (await ask(words, "/get_segments_detail")).json()) as { segments: SegmentDetail[] }).segments;
}
