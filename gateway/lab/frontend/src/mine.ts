/** What the user sees beyond the picture: own kernels, usage today, bursts. Asked for when something happens, never by the clock. */

import { Session } from '@jupyterlab/services';
import { ISignal, Signal } from '@lumino/signaling';
import { Gateway } from './gateway';
import { Burst, Usage } from './model';
import { own } from './picture';
import { total } from './usage';

const SOON = 300; // milliseconds in which what happens at once is asked for once
const USAGE_EVERY = 30_000; // milliseconds between two looks at usage, however often a lease ends

type Rows = { rows: (Usage & { user: string })[] };

export class Mine {
  kernels: ReadonlySet<string> = new Set();
  usage: Usage | null = null;
  /** When that was counted, in milliseconds since 1970 on the gateway's clock. */
  usageAt = 0;
  bursts: readonly Burst[] = [];
  /** While nobody sees the panel nothing is asked. */
  watched = false;

  private readonly _changed = new Signal<this, void>(this);
  private asked = 0;
  private timer = 0;
  private usageTimer = 0;

  constructor(
    private readonly gateway: Gateway,
    private readonly sessions: Session.IManager
  ) {
    sessions.runningChanged.connect(() => this.count());
    gateway.happened.connect((_, name) => this.heard(name));
    this.count();
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  watch(watched: boolean): void {
    this.watched = watched;
    this.heard('burst');
    this.heard('lease');
  }

  /** The names under which the gateway knows this user. */
  private users(): Set<string> {
    return new Set(own(this.gateway.picture, this.kernels).map(lease => lease.user));
  }

  private count(): void {
    this.kernels = new Set([...this.sessions.running()].flatMap(session => (session.kernel ? [session.kernel.id] : [])));
    this._changed.emit();
  }

  private heard(name: string): void {
    if (!this.watched || this.gateway.health !== 'here') {
      return;
    }
    if (name === 'burst' || name === 'state') {
      window.clearTimeout(this.timer);
      this.timer = window.setTimeout(() => void this.askBursts(), SOON);
    }
    if (name === 'lease' || name === 'state') {
      window.clearTimeout(this.usageTimer);
      this.usageTimer = window.setTimeout(() => void this.askUsage(), Math.max(SOON, this.asked + USAGE_EVERY - Date.now()));
    }
  }

  private async askBursts(): Promise<void> {
    try {
      const { bursts } = await this.gateway.ask<{ bursts: Burst[] }>('GET', 'api/bursts');
      const users = this.users();
      this.bursts = bursts.filter(burst => users.has(burst.user) || this.kernels.has(burst.kernel_id));
    } catch {
      this.bursts = []; // a site without bursts
    }
    this._changed.emit();
  }

  private async askUsage(): Promise<void> {
    this.asked = Date.now();
    const midnight = new Date(new Date(this.gateway.now()).setHours(0, 0, 0, 0)).toISOString();
    try {
      const { rows } = await this.gateway.ask<Rows>('GET', `api/gpu/usage?by=user&since=${encodeURIComponent(midnight)}`);
      const users = this.users();
      this.usageAt = this.gateway.now();
      this.usage = total(rows.filter(row => users.has(row.user)));
    } catch {
      this.usage = null; // a site that keeps none
    }
    this._changed.emit();
  }
}
