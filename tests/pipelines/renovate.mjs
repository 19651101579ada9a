// Writes the updates that Renovate found into vault.lock, with the function by which Renovate writes them into a branch: its local mode only looks.
//
// Arguments: the folder of the package renovate, the log of `renovate --platform=local` in JSON, the file vault.lock.
import { readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

const [folder, log, lock] = process.argv.slice(2);
const { doAutoReplace } = await import(`${folder}/dist/workers/repository/update/branch/auto-replace.js`);
const { GlobalConfig } = await import(`${folder}/dist/config/global.js`);
GlobalConfig.set({ localDir: dirname(lock) });
const lines = readFileSync(log, "utf8").split("\n").filter((line) => line.startsWith("{"));
const found = lines.map((line) => JSON.parse(line)).find((line) => line.msg === "packageFiles with updates");
let text = readFileSync(lock, "utf8");
for (const { deps, packageFile, ...manager } of found.config.regex) {
    for (const [depIndex, { updates, ...dep }] of deps.entries()) {
        for (const update of updates) {
            const upgrade = { manager: "regex", customType: "regex", packageFile, depIndex, ...manager, ...dep, ...update };
            const changed = await doAutoReplace(upgrade, text, false);
            if (changed === null) throw new Error(`Renovate cannot write ${JSON.stringify(upgrade)}`);
            text = changed;
            console.log(`${dep.depName} ${dep.currentValue ?? "HEAD"} ${update.newValue ?? ""} ${update.newDigest}`);
        }
    }
}
writeFileSync(lock, text);
