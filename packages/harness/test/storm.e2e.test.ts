// Thirty rounds of the storm, or as many as fit into three minutes.
import { stormSuite } from "./storm.suite.ts";

stormSuite({ rounds: 30, budgetMs: 150_000, atLeastEach: 1 });
