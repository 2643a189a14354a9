// The cold tier in a bucket of an S3-compatible server.
import { inBucket } from "./cold-storage.ts";
import { coldTierSuite } from "./cold-tier.suite.ts";

coldTierSuite(inBucket);
