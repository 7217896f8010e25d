/**
 * Builds the prebuilt extension into ../labextension, or, with `tests DIR`, the unit tests into DIR.
 *
 * JupyterLab loads an extension as a module-federation container: a script that puts `{init, get}` under `window._JUPYTERLAB`. Ours is so
 * small that the container is written here by hand (see `container`), which needs esbuild alone, and no webpack. Whatever JupyterLab
 * shares is taken from it and never bundled.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const facts = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8'));
const target = 'es2022';
const options = { bundle: true, target, loader: { '.css': 'text', '.svg': 'text' }, logLevel: 'warning' };

/** The container around a CommonJS bundle: `wanted` are the modules that it takes from JupyterLab. */
function container(bundle, wanted) {
  return `(() => {
const WANTED = ${JSON.stringify(wanted)};
const newer = (a, b) => a.localeCompare(b, undefined, { numeric: true }) > 0;
const choose = versions => Object.keys(versions).reduce((best, each) =>
  !best || (versions[each].loaded && !versions[best].loaded) || (!versions[best].loaded && newer(each, best)) ? each : best, '');
let scope, made;
async function make() {
  const given = {};
  await Promise.all(WANTED.map(async name => {
    const versions = scope[name];
    if (!versions) throw new Error(${JSON.stringify(facts.name)} + ' needs ' + name + ', which this front end does not have');
    given[name] = (await versions[choose(versions)].get())();
  }));
  const module = { exports: {} };
  (function (require, module, exports) {
${bundle}
  })(name => given[name], module, module.exports);
  return module.exports;
}
(window._JUPYTERLAB = window._JUPYTERLAB || {})[${JSON.stringify(facts.name)}] = {
  init: shared => { scope = shared; },
  get: async () => { const exports = await (made = made || make()); return () => exports; }
};
})();
`;
}

async function extension() {
  const out = join(here, '..', 'labextension');
  const done = await build({
    ...options,
    entryPoints: [join(here, 'src', 'index.ts')],
    external: ['@jupyterlab/*', '@lumino/*', 'react', 'react-dom'],
    format: 'cjs',
    minify: true,
    write: false,
    metafile: true
  });
  const wanted = Object.values(done.metafile.outputs).flatMap(each => each.imports.map(found => found.path));
  const script = container(done.outputFiles[0].text, [...new Set(wanted)].sort());
  const file = `static/remoteEntry.${createHash('sha256').update(script).digest('hex').slice(0, 16)}.js`;
  rmSync(out, { recursive: true, force: true });
  mkdirSync(join(out, 'static'), { recursive: true });
  writeFileSync(join(out, file), script);
  const { name, version, description } = facts;
  const said = { name, version, description, jupyterlab: { extension: true, _build: { load: file, extension: './extension' } } };
  writeFileSync(join(out, 'package.json'), JSON.stringify(said, null, 2) + '\n');
  const install = { packageManager: 'python', packageName: name, uninstallInstructions: `pip uninstall ${name}` };
  writeFileSync(join(out, 'install.json'), JSON.stringify(install, null, 2) + '\n');
  console.log(`${file}: ${script.length} bytes`);
}

async function tests(out) {
  const folder = join(here, '..', '..', '..', 'tests', 'lab', 'frontend');
  const files = readdirSync(folder).filter(name => name.endsWith('.test.ts'));
  const entryPoints = files.map(name => join(folder, name));
  await build({ ...options, entryPoints, outdir: out, outExtension: { '.js': '.mjs' }, format: 'esm', platform: 'node', sourcemap: 'inline' });
}

await (process.argv[2] === 'tests' ? tests(process.argv[3]) : extension());
