// A client of the HTTP/2 door, by Node's http2 module. It reads commands, one a
// line, and answers each with a line:
//
//	open ADDRESS  opens a tunnel and holds it; from then on it opens others, and
//	              writes to them, all the time
//	drained       waits for the door's goodbye, and says whether the tunnel lives
//	fill          gives up many dials, begins more than the door takes, and says
//	              whether the tunnel lives
import http2 from 'node:http2';
import readline from 'node:readline';

let session, held, busy, goodbye;

const tunnel = (authority) => {
  const s = session.request({ ':method': 'CONNECT', ':authority': authority });
  s.on('error', () => {}); // or it would end this program
  return s;
};

const event = (emitter, ...names) =>
  new Promise((done) => names.forEach((name) => emitter.once(name, (value) => done([name, value]))));

// alive says whether the held tunnel still repeats what it is told.
async function alive() {
  held.write('echo');
  const [name, value] = await Promise.race([event(held, 'data', 'error', 'close', 'end'), event(session, 'error')]);
  return name === 'data' ? 'kept' : `cut: ${name} ${value ?? ''}`;
}

async function open(address) {
  session = http2.connect(`http://${address}`);
  session.on('error', () => {});
  goodbye = event(session, 'goaway', 'close', 'error');
  held = tunnel('held:1');
  const [name, value] = await event(held, 'response', 'error', 'close');
  if (name !== 'response' || value[':status'] !== 200) return `no tunnel: ${name} ${value}`;
  const state = await alive();
  if (state !== 'kept') return state;
  busy = true;
  const more = () => {
    if (!busy || session.closed || session.destroyed) return;
    for (let i = 0; i < 5; i++) {
      const s = tunnel('other:1');
      s.resume();
      s.write('early');
      s.on('response', () => s.close());
    }
    setImmediate(more);
  };
  more();
  return 'open';
}

async function drained() {
  await goodbye;
  busy = false;
  const state = await alive();
  held.close();
  session.close();
  return state;
}

async function fill() {
  busy = false;
  const most = session.remoteSettings.maxConcurrentStreams;
  const slow = Array.from({ length: most - 1 }, () => tunnel('slow:1'));
  await new Promise((done) => session.ping(() => done()));
  const closed = slow.map((s) => event(s, 'close'));
  slow.forEach((s) => s.close(http2.constants.NGHTTP2_CANCEL));
  await Promise.all(closed);
  const more = Array.from({ length: 200 }, () => {
    const s = tunnel('other:1');
    s.write('early');
    return event(s, 'error', 'response');
  });
  const refused = (await Promise.all(more)).filter(([name]) => name === 'error');
  if (refused.length === 0) return 'the door has refused no stream';
  const state = await alive();
  held.close();
  session.close();
  return state;
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [command, address] = line.split(' ');
  console.log(await { open, drained, fill }[command](address));
}
process.exit(0);
