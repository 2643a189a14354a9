// The release whose wire this is, as masters and clients compare it when they meet.
export const HANDSHAKE_VERSION = "2.0.0";
