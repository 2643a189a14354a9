// The cold tier in folders of this host.
import { coldKillsSuite } from "./cold-kills.suite.ts";
import { inFolder } from "./cold-storage.ts";
import { coldTierSuite } from "./cold-tier.suite.ts";

coldTierSuite(inFolder);
coldKillsSuite(inFolder);
