/** Tells the user, before a GPU of this Lab's kernels is taken back or a kernel ended, and offers to keep it. */

import { Notification } from '@jupyterlab/apputils';
import { Gateway } from './gateway';
import { Mine } from './mine';
import { KernelNews } from './model';
import { NAMED, Notice, notice, upcoming } from './noticing';
import { HOLD_SECONDS } from './rows';
import { brief, called, span } from './words';

export class Notices {
  private readonly said = new Set<string>(); // keys
  private readonly shown = new Map<string, string>(); // by kernel: the notice that is on the screen
  private readonly warned = new Map<string, string>(); // by kernel: the warning that it will be ended
  private timer = 0;

  constructor(
    private readonly gateway: Gateway,
    private readonly mine: Mine
  ) {
    gateway.changed.connect(() => this.look());
    gateway.kernelNews.connect((_, news) => this.culling(news));
  }

  private look(): void {
    window.clearTimeout(this.timer);
    const now = this.gateway.now();
    let soonest = Infinity;
    for (const kernel of this.mine.kernels) {
      const lease = this.gateway.picture.leases.get(kernel);
      const said = lease && notice(lease, this.gateway.picture, now);
      if (said) {
        this.say(said);
      } else {
        this.withdraw(kernel);
      }
      if (!said || !said.idle) {
        soonest = Math.min(soonest, (lease && upcoming(lease, now)) ?? Infinity);
      }
    }
    if (soonest < Infinity) {
      this.timer = window.setTimeout(() => this.look(), soonest + 100);
    }
  }

  private say(what: Notice): void {
    if (this.said.has(what.key)) {
      return;
    }
    this.said.add(what.key);
    this.withdraw(what.kernel);
    const release = { label: 'Release now', callback: () => this.post(what.kernel, 'release') };
    const actions = [this.keep(what.kernel, 'Keep for 30 min'), ...(what.idle ? [release] : [])];
    this.shown.set(what.kernel, Notification.info(what.text, { autoClose: Math.max(5000, what.left), actions }));
  }

  private culling(news: KernelNews): void {
    const { kernel_id: kernel } = news;
    const earlier = this.warned.get(kernel);
    if (earlier) {
      Notification.dismiss(earlier);
      this.warned.delete(kernel);
    }
    const left = news.ends_at ? Date.parse(news.ends_at) - this.gateway.now() : 0;
    if (news.action !== 'cull_warned' || left <= 0 || !this.mine.kernels.has(kernel)) {
      return;
    }
    const name = called(this.gateway.picture.leases.get(kernel) ?? { notebook: '', kernel_id: kernel });
    const text = `${brief(name, NAMED)} has been idle for long: its kernel ends in ${span(left / 1000)}, and all variables with it.`;
    this.warned.set(kernel, Notification.warning(text, { autoClose: left, actions: [this.keep(kernel, 'Keep for 30 min')] }));
  }

  private keep(kernel: string, label: string): Notification.IAction {
    return { label, callback: () => this.post(kernel, 'hold', { seconds: HOLD_SECONDS }) };
  }

  private withdraw(kernel: string): void {
    const id = this.shown.get(kernel);
    if (id) {
      Notification.dismiss(id);
      this.shown.delete(kernel);
    }
  }

  private post(kernel: string, deed: string, body: unknown = {}): void {
    this.gateway
      .ask('POST', `api/gpu/kernels/${kernel}/${deed}`, body)
      .catch((reason: Error) => Notification.error(reason.message, { autoClose: 8000 }));
  }
}
