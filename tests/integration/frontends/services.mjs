// A client as VS Code's Jupyter extension is one: @jupyterlab/services in Node, its own WebSocket class, kernels started by name.
// Reads one JSON object a line ({"do": ...}) and answers each with one.
import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';

const answer = value => process.stdout.write(`${JSON.stringify(value)}\n`);
console.log = console.info = console.warn = console.debug = console.error; // the library's own words

const require = createRequire(`${process.argv[2]}/`);
const { KernelManager, KernelSpecManager, ServerConnection, SessionManager } = require('@jupyterlab/services');
const WebSocket = require('ws');

const [, , , baseUrl, token, protocol] = process.argv;

/** A server that is offered no subprotocol speaks the legacy one. */
class Legacy extends WebSocket {
  constructor(url, _protocols, options) {
    super(url, [], options);
  }
}

const serverSettings = ServerConnection.makeSettings({
  baseUrl,
  wsUrl: baseUrl.replace('http', 'ws'),
  token,
  appendToken: true,
  WebSocket: protocol === 'legacy' ? Legacy : WebSocket
});
const kernelManager = new KernelManager({ serverSettings });
const sessions = new SessionManager({ kernelManager, serverSettings });
const specs = new KernelSpecManager({ serverSettings });
let session;

async function run(code, stdin) {
  const future = session.kernel.requestExecute({ code, allow_stdin: stdin !== undefined });
  const seen = { out: '', ename: '' };
  future.onIOPub = message => {
    const { content, header } = message;
    if (header.msg_type === 'stream') seen.out += content.text;
    if (header.msg_type === 'error') seen.ename = content.ename;
  };
  future.onStdin = message => {
    if (message.header.msg_type === 'input_request') session.kernel.sendInputReply({ value: stdin, status: 'ok' }, message.header);
  };
  const reply = await future.done;
  return { ...seen, status: reply.content.status };
}

const actions = {
  specs: async () => {
    await specs.ready;
    return { names: Object.keys(specs.specs.kernelspecs) };
  },
  open: async ({ name, path }) => {
    session = await sessions.startNew({ path, name: path, type: 'notebook', kernel: { name } });
    await session.kernel.info;
    return { id: session.kernel.id, subprotocol: session.kernel._ws?.protocol ?? '' };
  },
  run: async ({ code, stdin }) => run(code, stdin),
  /** Interrupts once the cell has printed something. */
  interrupt: async ({ code }) => {
    const future = session.kernel.requestExecute({ code });
    let [asked, ename] = [false, ''];
    future.onIOPub = message => {
      if (message.header.msg_type === 'stream' && !asked) {
        asked = true; // a second one would meet the kernel as it tells of the first
        void session.kernel.interrupt();
      }
      if (message.header.msg_type === 'error') ename = message.content.ename;
    };
    await future.done;
    return { ename };
  },
  restart: async () => {
    await session.kernel.restart();
    return {};
  },
  /** A comm whose kernel side sends back what it gets, turned around. */
  comm: async ({ bytes }) => {
    const comm = session.kernel.createComm('echo');
    const coming = new Promise(resolve => (comm.onMsg = message => resolve(message)));
    comm.open({});
    comm.send({}, undefined, [new Uint8Array(bytes).buffer]);
    const message = await coming;
    const view = message.buffers[0];
    return { bytes: [...new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength)] };
  },
  /** Whatever happens to the connection meanwhile. */
  connected: async () => {
    while (session.kernel.connectionStatus !== 'connected') await new Promise(resolve => setTimeout(resolve, 50));
    return {};
  },
  lost: async () => {
    while (session.kernel.connectionStatus === 'connected') await new Promise(resolve => setTimeout(resolve, 20));
    return {};
  },
  end: async () => {
    await session.shutdown();
    return {};
  }
};

for await (const line of createInterface({ input: process.stdin })) {
  const wish = JSON.parse(line);
  try {
    answer(await actions[wish.do](wish));
  } catch (error) {
    answer({ failed: String(error) });
  }
}
process.exit(0);
