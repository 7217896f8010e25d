/** The sidebar panel: the site's GPUs, the user's own leases, who waits, bursts, usage today. */

import { Notification } from '@jupyterlab/apputils';
import { LabIcon, ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';
import svg from '../style/gpu.svg';
import { BurstRow } from './bursts';
import { Current } from './current';
import { Gateway } from './gateway';
import { Mine } from './mine';
import { own } from './picture';
import { Deeds, OwnLease, SiteGpu, Waiting } from './rows';
import { shown } from './phase';
import { Gpu } from './model';
import { untilNow } from './usage';
import { span } from './words';

export const icon = new LabIcon({ name: 'jupyter-elastic-gateway:gpu', svgstr: svg });

const NODE_FROM = 9; // with so many GPUs they are shown by node, folded

export class Panel extends ReactWidget {
  private timer = 0;

  constructor(
    private readonly gateway: Gateway,
    private readonly current: Current,
    private readonly mine: Mine
  ) {
    super();
    this.id = 'jp-elastic-gateway';
    this.title.icon = icon;
    this.title.caption = 'GPUs';
    this.addClass('jp-ElasticPanel');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'GPUs');
    gateway.changed.connect(this.look, this);
    current.changed.connect(this.look, this);
    mine.changed.connect(this.look, this);
  }

  override dispose(): void {
    window.clearTimeout(this.timer);
    this.gateway.changed.disconnect(this.look, this);
    this.current.changed.disconnect(this.look, this);
    this.mine.changed.disconnect(this.look, this);
    super.dispose();
  }

  private look(): void {
    if (this.isVisible) {
      this.update();
    }
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.mine.watch(true);
    this.update();
  }

  protected override onBeforeHide(message: Message): void {
    super.onBeforeHide(message);
    this.mine.watch(false);
    window.clearTimeout(this.timer);
  }

  private readonly deeds: Deeds = {
    hold: (kernel, seconds) => this.act(`api/gpu/kernels/${kernel}/hold`, { seconds }),
    release: kernel => this.act(`api/gpu/kernels/${kernel}/release`)
  };

  private act(path: string, body?: unknown): void {
    this.gateway.ask('POST', path, body ?? {}).catch((reason: Error) => Notification.error(reason.message, { autoClose: 8000 }));
  }

  protected override render(): React.JSX.Element {
    const { picture, health } = this.gateway;
    const now = this.gateway.now();
    const leases = own(picture, this.mine.kernels);
    const ids = new Set(leases.map(lease => lease.kernel_id));
    const held = new Set([...picture.leases.values()].flatMap(lease => lease.gpus));
    const usage = this.mine.usage && untilNow(this.mine.usage, this.mine.usageAt, leases, now);
    const ticks = picture.queue.length > 0 || leases.some(lease => lease.gpus.length > 0 || shown(lease, undefined, now).ticks);
    window.clearTimeout(this.timer);
    if (ticks && this.isVisible) {
      this.timer = window.setTimeout(() => this.update(), 1000);
    }
    if (health !== 'here' && !picture.gpus.length) {
      return <p className="jp-ElasticEmpty">The gateway does not answer.</p>;
    }
    return (
      <>
        {health === 'away' && (
          <p className="jp-ElasticAway" role="status">
            The gateway does not answer; this is what was last known.
          </p>
        )}
        <Section title="Your kernels" empty="None of your kernels can have a GPU.">
          {leases.map(lease => (
            <OwnLease
              key={lease.kernel_id}
              lease={lease}
              picture={picture}
              now={now}
              front={lease.kernel_id === this.current.kernel}
              deeds={this.deeds}
            />
          ))}
        </Section>
        <Section title="GPUs" aside={`${picture.gpus.filter(gpu => held.has(gpu.uuid)).length} of ${picture.gpus.length} in use`} empty="There are none.">
          {byNode(picture.gpus).map(([node, gpus]) => {
            const rows = gpus.map(gpu => <SiteGpu key={gpu.uuid} gpu={gpu} picture={picture} mine={ids} now={now} />);
            return node === '' ? rows : <Node key={node} name={node} free={free(gpus, held)} of={gpus.length} rows={rows} />;
          })}
        </Section>
        <Section title="Queue" empty="Nobody waits.">
          {picture.queue.map(wait => (
            <Waiting key={wait.kernel_id} wait={wait} mine={ids.has(wait.kernel_id)} now={now} />
          ))}
        </Section>
        {this.mine.bursts.length > 0 && (
          <Section title="Distributed cells" empty="">
            {[...this.mine.bursts].reverse().map(burst => (
              <BurstRow key={burst.id} burst={burst} gateway={this.gateway} />
            ))}
          </Section>
        )}
        {usage && (
          <Section title="Your GPU time today" empty="">
            <li className="jp-ElasticUsage">
              <Figure name="held" seconds={usage.gpu_seconds_held} title="From getting a GPU to giving it back" />
              <Figure name="executed" seconds={usage.gpu_seconds_executed} title="While something ran on it" />
              <Figure name="saved" seconds={usage.gpu_seconds_saved} title="For which others could have it, though your kernels lived on" />
            </li>
          </Section>
        )}
      </>
    );
  }
}

function free(gpus: readonly Gpu[], held: ReadonlySet<string>): number {
  return gpus.filter(gpu => gpu.leasable && !held.has(gpu.uuid)).length;
}

/** A few GPUs are one list; many are folded by node. */
function byNode(gpus: readonly Gpu[]): [string, Gpu[]][] {
  const nodes = new Map<string, Gpu[]>();
  for (const gpu of gpus) {
    const node = gpus.length < NODE_FROM ? '' : gpu.node;
    nodes.set(node, [...(nodes.get(node) ?? []), gpu]);
  }
  return [...nodes].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true }));
}

function Section(props: { title: string; aside?: string; empty: string; children: React.ReactNode }): React.JSX.Element {
  const id = React.useId();
  const nothing = React.Children.count(props.children) === 0;
  return (
    <section className="jp-ElasticSection" aria-labelledby={id}>
      <h2 id={id} className="jp-ElasticSection-title">
        {props.title}
        {props.aside && <span className="jp-ElasticSection-aside">{props.aside}</span>}
      </h2>
      {nothing ? <p className="jp-ElasticEmpty">{props.empty}</p> : <ul className="jp-ElasticList">{props.children}</ul>}
    </section>
  );
}

function Node(props: { name: string; free: number; of: number; rows: React.ReactNode }): React.JSX.Element {
  return (
    <li>
      <details className="jp-ElasticNode">
        <summary>
          {props.name} <span className="jp-ElasticRow-aside">{`${props.free} of ${props.of} free`}</span>
        </summary>
        <ul className="jp-ElasticList">{props.rows}</ul>
      </details>
    </li>
  );
}

function Figure({ name, seconds, title }: { name: string; seconds: number; title: string }): React.JSX.Element {
  return (
    <span className="jp-ElasticFigure" title={title}>
      <strong>{span(seconds)}</strong> {name}
    </span>
  );
}
