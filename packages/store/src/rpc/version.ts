// The version of the wire, which masters and clients compare in the handshake.
export const HANDSHAKE_VERSION = "2.0.0";
