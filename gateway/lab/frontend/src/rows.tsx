/** The panel's lines: a lease of one's own, a GPU of the site, one that waits. */

import * as React from 'react';
import { Gpu, Lease, Picture, Wait } from './model';
import { shown } from './phase';
import { holders, waiting } from './picture';
import { called, clock, memory, short } from './words';

export const HOLD_SECONDS = 1800;

export interface Deeds {
  hold(kernel: string, seconds: number): void;
  release(kernel: string): void;
}

export function Dot({ kind }: { kind: string }): React.JSX.Element {
  return <span className="jp-ElasticDot" data-kind={kind} aria-hidden="true" />;
}

export function Small(props: { label: string; title: string; disabled?: boolean; onClick: () => void; text: string }): React.JSX.Element {
  return (
    <button
      type="button"
      className="jp-ElasticSmall"
      title={props.title}
      aria-label={props.label}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      {props.text}
    </button>
  );
}

export function OwnLease(props: { lease: Lease; picture: Picture; now: number; front: boolean; deeds: Deeds }): React.JSX.Element {
  const { lease, deeds } = props;
  const name = called(lease);
  const state = shown(lease, waiting(props.picture, lease.kernel_id), props.now);
  const held = lease.hold_until !== null && Date.parse(lease.hold_until) > props.now;
  const busy = lease.executing || lease.phase === 'RESUMING' || lease.phase === 'PARKING';
  const holds = lease.phase === 'HOLDING' && lease.gpus.length > 0;
  return (
    <li className="jp-ElasticRow" data-front={props.front}>
      <Dot kind={state.kind} />
      <div className="jp-ElasticRow-text">
        <span className="jp-ElasticRow-name" title={lease.notebook || lease.kernel_id}>
          {name}
        </span>
        <span className="jp-ElasticRow-more" title={state.title}>
          {state.text}
        </span>
      </div>
      {(holds || held) && (
        <div className="jp-ElasticRow-deeds">
          {held ? (
            <Small text="Unhold" label={`End the hold of ${name}`} title="Let the idle timeout count again" onClick={() => deeds.hold(lease.kernel_id, 0)} />
          ) : (
            <Small
              text="Hold"
              label={`Hold the GPU of ${name} for 30 minutes`}
              title="Keep the GPU for 30 minutes although nothing runs"
              onClick={() => deeds.hold(lease.kernel_id, HOLD_SECONDS)}
            />
          )}
          <Small
            text="Release"
            label={`Release the GPU of ${name}`}
            title={busy ? 'A cell runs on the GPU: interrupt it first' : 'Give the GPU back now; its state is parked in memory'}
            disabled={busy || !holds}
            onClick={() => deeds.release(lease.kernel_id)}
          />
        </div>
      )}
    </li>
  );
}

export function SiteGpu(props: { gpu: Gpu; picture: Picture; mine: ReadonlySet<string>; now: number }): React.JSX.Element {
  const { gpu, picture } = props;
  const who = holders(picture, gpu.uuid);
  const first = who[0];
  const kind = first ? shown(first, undefined, props.now).kind : gpu.leasable ? 'free' : 'off';
  const more = who.length > 1 ? ` and ${who.length - 1} more` : '';
  const drained = picture.drained.includes(gpu.node) ? 'drained' : 'not available';
  const holder = first ? `${first.user ? `${first.user} · ` : ''}${called(first)}${more}` : gpu.leasable ? 'free' : drained;
  return (
    <li className="jp-ElasticRow" data-mine={who.some(lease => props.mine.has(lease.kernel_id))}>
      <Dot kind={kind} />
      <div className="jp-ElasticRow-text">
        <span className="jp-ElasticRow-name" title={gpu.uuid}>
          {short(gpu.uuid)}
          <span className="jp-ElasticRow-aside">
            {gpu.flavor} · {memory(gpu.memory_bytes)}
          </span>
        </span>
        <span className="jp-ElasticRow-more" title={first?.notebook}>
          {holder}
        </span>
      </div>
    </li>
  );
}

export function Waiting(props: { wait: Wait; mine: boolean; now: number }): React.JSX.Element {
  const { wait } = props;
  const since = clock((props.now - Date.parse(wait.since)) / 1000);
  return (
    <li className="jp-ElasticRow" data-mine={props.mine}>
      <span className="jp-ElasticPlace" aria-label={`place ${wait.position}`}>
        {wait.position}
      </span>
      <div className="jp-ElasticRow-text">
        <span className="jp-ElasticRow-name">{called(wait)}</span>
        <span className="jp-ElasticRow-more" title={wait.quota}>
          {wait.user ? `${wait.user} · ` : ''}
          {wait.count > 1 ? `${wait.count} GPUs · ` : ''}
          {since}
        </span>
      </div>
    </li>
  );
}
