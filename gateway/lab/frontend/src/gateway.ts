/** The line to the gateway's API: one stream of events while the page can be seen, and a request for each button. It never polls. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { ISignal, Signal } from '@lumino/signaling';
import { KernelNews, NOTHING, Picture } from './model';
import { after } from './picture';
import { Reader } from './sse';
import { skew } from './words';

const FIRST_RETRY = 1000; // milliseconds, doubled up to
const LAST_RETRY = 30_000;
const HIDDEN_FOR = 60_000; // after so long out of sight the stream is closed, until somebody looks again

export type Health = 'unknown' | 'here' | 'away' | 'absent';

export class Gateway {
  picture: Picture = NOTHING;
  /** `absent`: there is no such API, and nothing is asked again. */
  health: Health = 'unknown';

  private readonly _changed = new Signal<this, void>(this);
  private readonly _happened = new Signal<this, string>(this);
  private readonly _kernelNews = new Signal<this, KernelNews>(this);
  private skew = 0; // milliseconds that the gateway's clock is ahead of this one
  private abort: AbortController | null = null;
  private retry = FIRST_RETRY;
  private hidden = 0;

  constructor(private readonly settings: ServerConnection.ISettings) {}

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The name of each event, once the picture has it. */
  get happened(): ISignal<this, string> {
    return this._happened;
  }

  /** An idle kernel is about to be ended, or no longer. */
  get kernelNews(): ISignal<this, KernelNews> {
    return this._kernelNews;
  }

  /** Milliseconds since 1970 on the gateway's clock. */
  now(): number {
    return Date.now() + this.skew;
  }

  open(): void {
    document.addEventListener('visibilitychange', () => {
      window.clearTimeout(this.hidden);
      if (document.hidden) {
        this.hidden = window.setTimeout(() => this.abort?.abort(), HIDDEN_FOR);
      } else {
        void this.listen();
      }
    });
    void this.listen();
  }

  /** Ask for something. Throws an `Error` with the gateway's own words. */
  async ask<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
    const response = await this.fetch(path, { method, signal, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) {
      throw new Error(said(text) || `The gateway answered ${response.status} ${response.statusText}.`);
    }
    return (text ? JSON.parse(text) : null) as T;
  }

  /** Read events until the stream ends; then, and while there is no gateway, try again ever more rarely. */
  private async listen(): Promise<void> {
    if (this.abort || this.health === 'absent') {
      return;
    }
    const abort = (this.abort = new AbortController());
    try {
      await this.read(abort.signal);
    } catch (reason) {
      if (!abort.signal.aborted) {
        console.debug('The stream of GPU events has ended:', reason);
      }
    }
    this.abort = null;
    if ((this.health as Health) === 'absent' || document.hidden) {
      return;
    }
    this.set('away');
    window.setTimeout(() => void this.listen(), this.retry * (0.5 + Math.random() / 2));
    this.retry = Math.min(2 * this.retry, LAST_RETRY);
  }

  private async read(signal: AbortSignal): Promise<void> {
    const asked = Date.now();
    const response = await this.fetch('api/gpu/events', { signal, headers: { Accept: 'text/event-stream' } });
    if (response.status === 404 || response.status === 403) {
      this.set('absent');
      return;
    }
    if (!response.ok || !response.body) {
      return;
    }
    this.skew = skew(Date.parse(response.headers.get('Date') ?? ''), asked, Date.now());
    const events = new Reader();
    const stream = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let piece = await stream.read(); !piece.done; piece = await stream.read()) {
      const told = events.take(piece.value);
      if (told.length) {
        this.picture = told.reduce((picture, each) => after(picture, each.name, each.value), this.picture);
        this.retry = FIRST_RETRY;
        this.set('here');
        new Set(told.map(each => each.name)).forEach(name => this._happened.emit(name));
        told.filter(each => each.name === 'kernel').forEach(each => this._kernelNews.emit(each.value as KernelNews));
      }
    }
  }

  private set(health: Health): void {
    this.health = health;
    this._changed.emit();
  }

  private fetch(path: string, init: RequestInit): Promise<Response> {
    return ServerConnection.makeRequest(URLExt.join(this.settings.baseUrl, path), { cache: 'no-store', ...init }, this.settings);
  }
}

function said(text: string): string {
  try {
    return String((JSON.parse(text) as { message?: string }).message ?? '');
  } catch {
    return '';
  }
}
