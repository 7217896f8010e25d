/** One burst in the panel: its ranks, what they print, and the way to end it. */

import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';
import { BurstLog, EMPTY, Entry, read } from './burstlog';
import { Gateway } from './gateway';
import { Burst } from './model';
import { Dot, Small } from './rows';
import { clock } from './words';

const NEAR = 20; // pixels from the end that still count as there
const AGAIN = 3000; // milliseconds until a journal that couldn't be read is tried again

export function BurstRow({ burst, gateway }: { burst: Burst; gateway: Gateway }): React.JSX.Element {
  const [open, setOpen] = React.useState(false);
  const log = useLog(burst, gateway, open);
  const running = burst.state !== 'ended';
  const kind = running ? (burst.state === 'running' ? 'running' : 'waiting') : ['ok', 'cancelled'].includes(burst.outcome) ? 'done' : 'alarm';
  return (
    <li className="jp-ElasticBurst">
      <details open={open} onToggle={event => setOpen(event.currentTarget.open)}>
        <summary className="jp-ElasticRow">
          <Dot kind={kind} />
          <div className="jp-ElasticRow-text">
            <span className="jp-ElasticRow-name">
              {burst.name}
              <span className="jp-ElasticRow-aside">
                {size(burst)}
                {burst.gpus ? ` · ${burst.workers * burst.gpus} GPUs` : ''}
              </span>
            </span>
            <span className="jp-ElasticRow-more" title={burst.message}>
              {state(burst)}
            </span>
          </div>
        </summary>
        {open && <Ranks burst={burst} log={log} />}
      </details>
      {running && (
        <div className="jp-ElasticRow-deeds">
          <Small text="Cancel" label={`Cancel ${burst.name}`} title="End all its workers" onClick={() => void cancel(burst, gateway)} />
        </div>
      )}
    </li>
  );
}

/** Plain processes are an engine that is called none. */
function size(burst: Burst): string {
  return burst.engine === 'none' ? `${burst.workers} worker${burst.workers === 1 ? '' : 's'}` : `${burst.workers} × ${burst.engine}`;
}

const ENDS: Record<string, string> = { ok: 'finished', error: 'failed' };

function state(burst: Burst): string {
  if (burst.state === 'ended') {
    const took = burst.started && burst.ended ? ` after ${clock(burst.ended - burst.started)}` : '';
    return `${ENDS[burst.outcome] ?? burst.outcome}${took}${burst.message ? `: ${burst.message}` : ''}`;
  }
  if (burst.state !== 'running') {
    return burst.gpus ? 'waits for its GPUs' : 'waits to begin';
  }
  return `running${burst.leased.length ? ` on ${burst.leased.length} GPUs` : ''}`;
}

function Ranks({ burst, log }: { burst: Burst; log: BurstLog }): React.JSX.Element {
  const [rank, setRank] = React.useState<number | null>(null);
  const count = Math.max(log.of, burst.workers);
  const chosen = rank ?? [...log.failed][0] ?? 0;
  const kind = (n: number) => (log.failed.has(n) ? 'alarm' : log.ended || burst.state === 'ended' ? 'done' : n < log.running ? 'running' : 'waiting');
  const words: Record<string, string> = { alarm: 'failed', done: 'ended', running: 'running', waiting: 'not there yet' };
  return (
    <div className="jp-ElasticRanks">
      <div role="group" aria-label={`Ranks of ${burst.name}`} className="jp-ElasticRanks-list">
        {Array.from({ length: count }, (_, n) => (
          <button
            key={n}
            type="button"
            className="jp-ElasticRank"
            aria-pressed={n === chosen}
            aria-label={`Rank ${n}: ${words[kind(n)]}`}
            title={`Rank ${n}: ${words[kind(n)]}`}
            onClick={() => setRank(n)}
          >
            <Dot kind={kind(n)} />
            {n}
          </button>
        ))}
      </div>
      {log.note && <p className="jp-ElasticNote">{log.note}</p>}
      <Printed key={chosen} label={`What rank ${chosen} printed`} text={log.printed.get(chosen) || `Rank ${chosen} has printed nothing.`} />
    </div>
  );
}

/** New text is scrolled into view, unless somebody reads what is above it. */
function Printed({ label, text }: { label: string; text: string }): React.JSX.Element {
  const box = React.useRef<HTMLPreElement>(null);
  const atEnd = React.useRef(true);
  React.useLayoutEffect(() => {
    if (box.current && atEnd.current) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  }, [text]);
  const scrolled = ({ currentTarget: at }: React.UIEvent) => (atEnd.current = at.scrollHeight - at.scrollTop - at.clientHeight < NEAR);
  return (
    <pre className="jp-ElasticLog" tabIndex={0} aria-label={label} ref={box} onScroll={scrolled}>
      {text}
    </pre>
  );
}

/** The journal, read while the row is open: the gateway answers when there is something new. */
function useLog(burst: Burst, gateway: Gateway, open: boolean): BurstLog {
  const [log, setLog] = React.useState(EMPTY);
  React.useEffect(() => {
    if (!open) {
      return;
    }
    const abort = new AbortController();
    void follow(burst.id, gateway, setLog, abort.signal);
    return () => abort.abort();
  }, [open, burst.id, gateway]);
  return log;
}

async function follow(id: string, gateway: Gateway, set: (log: BurstLog) => void, signal: AbortSignal): Promise<void> {
  let [log, since, wait] = [EMPTY, 0, 0];
  while (!signal.aborted && !log.ended) {
    try {
      const path = `api/bursts/${id}/events?since=${since}&wait=${wait}`;
      const answer = await gateway.ask<{ events: Entry[]; next: number }>('GET', path, undefined, signal);
      wait = answer.events.length ? 0 : 1;
      since = answer.next;
      log = read(log, answer.events);
      set(log);
    } catch {
      if (!signal.aborted) {
        await new Promise(done => window.setTimeout(done, AGAIN));
      }
    }
  }
}

async function cancel(burst: Burst, gateway: Gateway): Promise<void> {
  const sure = await showDialog({
    title: `Cancel ${burst.name}?`,
    body: `All ${burst.workers} workers end, and what they have not given back is lost.`,
    buttons: [Dialog.cancelButton({ label: 'Keep running' }), Dialog.warnButton({ label: 'Cancel workers' })]
  });
  if (sure.button.accept) {
    try {
      await gateway.ask('DELETE', `api/bursts/${burst.id}`);
    } catch (reason) {
      Notification.error((reason as Error).message, { autoClose: 8000 });
    }
  }
}
