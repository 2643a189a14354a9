// The ranges that are closed to every sandbox unless the settings name others.

/** Private and shared ranges, link-local and cloud metadata, and ranges that are reserved or not unicast. */
export const defaultDeniedCidrs = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "168.63.129.16/32", // Azure's host: metadata, DNS and health of the machine
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24", // IETF protocol assignments; 192.0.0.192 is Oracle's metadata service
  "192.88.99.0/24", // 6to4 relays
  "192.168.0.0/16",
  "198.18.0.0/15", // tests of network devices; providers use it inside their networks
  "224.0.0.0/4",
  "240.0.0.0/4",
] as const;
