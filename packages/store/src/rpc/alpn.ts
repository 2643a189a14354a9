// The protocols on a master's port of TLS, by which clients say what they speak (ALPN); HTTP is also for clients that name none.

export const alpn = { http: "http/1.1", rpc: "svc-rpc", log: "svc-log" } as const;
