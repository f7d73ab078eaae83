// Check pages with axe in headless Chromium: light and dark, 600 and 1200 pixels wide. `make pages` runs it.
//   node axe.mjs FOLDER_OF_NODE_MODULES FOLDER_OF_PAGES
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [modules, pages] = process.argv.slice(2).map((folder) => path.resolve(folder));
const require = createRequire(path.join(modules, "node_modules", "/"));
const { chromium } = require("playwright-core");
const axe = require("axe-core");

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const files = fs.readdirSync(pages).filter((name) => name.endsWith(".html"));
let faults = files.length ? 0 : 1;
for (const file of files) {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [600, 1200]) {
      // The pages' own policy forbids every script but theirs, axe's too.
      const context = await browser.newContext({ colorScheme, viewport: { width, height: 900 }, bypassCSP: true });
      const page = await context.newPage();
      const found = [];
      page.on("request", (request) => request.isNavigationRequest() || found.push(`requests ${request.url()}`));
      page.on("pageerror", (error) => found.push(String(error)));
      await page.goto(`file://${path.join(pages, file)}`);
      if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) found.push("wider than the window");
      await page.evaluate(axe.source);
      const { violations } = await page.evaluate(() => axe.run());
      for (const { impact, id, nodes } of violations) found.push(`${impact}: ${id} at ${nodes.map((node) => node.target).join("; ")}`);
      for (const fault of found) console.log(`${file}, ${colorScheme}, ${width}: ${fault}`);
      faults += found.length;
      await context.close();
    }
  }
}
await browser.close();
console.log(`${files.length} pages, ${faults} faults`);
process.exit(faults ? 1 : 0);
