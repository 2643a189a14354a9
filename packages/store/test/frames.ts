// One call of Mooncake's RPC as bytes, for bodies that none of our schemas encodes.
import { connect } from "node:net";
import { errorMessage, RESPONSE_BYTES, requestHead } from "../src/rpc/frame.ts";
import { functionID } from "../src/rpc/operations.ts";

/** Returns the error of the wire, 0 for none, and its message. */
export async function ask(port: number, name: string, body: Buffer): Promise<{ error: number | undefined; message: string }> {
  const socket = connect(port, "127.0.0.1");
  socket.write(Buffer.concat([requestHead(1, functionID("mooncake::WrappedMasterService", name), body.length), body]));
  let got = Buffer.alloc(0);
  for await (const chunk of socket) {
    got = Buffer.concat([got, chunk as Buffer]);
    if (got.length >= RESPONSE_BYTES && got.length >= RESPONSE_BYTES + got.readUInt32LE(8)) break;
  }
  return { error: got[2], message: errorMessage(got.subarray(RESPONSE_BYTES)) };
}
