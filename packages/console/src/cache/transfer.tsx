// Transfer engines: the segments that they have registered at the metadata server, with memory, protocol and devices.
import type { JSX } from "preact";
import { bytes, count } from "../format.ts";
import { Empty } from "../parts.tsx";

type Buffer = { readonly length?: number };
type Segment = {
  readonly server_name?: string;
  readonly protocol?: string;
  readonly devices?: readonly { readonly name?: string }[];
  readonly buffers?: readonly Buffer[];
};
type Address = { readonly ip_or_host_name?: string; readonly rpc_port?: number };
/** The text of each record by its key, as its engine put it. */
export type TransferParts = { readonly records: Readonly<Record<string, string>> };

type Row = { readonly key: string; readonly name: string; readonly kind: string; readonly segment: Segment; readonly address: string };

/** Joins each segment with the address of its engine; records of other programs, under other keys or of another form, are left out. */
function rowsOf(records: Readonly<Record<string, string>>): Row[] {
  return Object.entries(records).flatMap(([key, text]) => {
    const [, brand, kind, name] = /^(.+?)\/(ram|nvmeof)\/(.+)$/.exec(key) ?? [];
    const segment = parsed(text);
    if (name === undefined || kind === undefined || segment === undefined) return [];
    const { ip_or_host_name: host, rpc_port: port } = (parsed(records[`${brand}/rpc_meta/${name}`]) ?? {}) as Address;
    return [{ key, name, kind, segment: segment as Segment, address: host === undefined ? "" : `${host}:${port}` }];
  });
}

function parsed(text: string | undefined): object | undefined {
  try {
    const value: unknown = JSON.parse(text ?? "");
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

export function Transfer({ parts }: { readonly parts: Partial<TransferParts> }): JSX.Element {
  const rows = rowsOf(parts.records ?? {});
  return (
    <section aria-label="Transfer engines">
      <h2>Transfer engines</h2>
      {rows.length === 0 ? (
        <Empty title="No transfer engine has registered a segment here. Engines with the metadata P2PHANDSHAKE register nowhere." />
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">Segment</th>
              <th scope="col">Address</th>
              <th scope="col">Protocol</th>
              <th scope="col">Devices</th>
              <th scope="col">Buffers</th>
              <th scope="col">Size</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ key, name, kind, segment, address }) => (
              <tr key={key}>
                <th scope="row">{name}</th>
                <td>{address === "" ? <span class="state failed">has no address</span> : address}</td>
                <td>{kind === "nvmeof" ? "nvmeof" : segment.protocol}</td>
                <td>{segment.devices?.map((device) => device.name).join(", ")}</td>
                <td>{count(segment.buffers?.length ?? 0)}</td>
                <td>{bytes((segment.buffers ?? []).reduce((sum, { length = 0 }) => sum + Number(length), 0))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
