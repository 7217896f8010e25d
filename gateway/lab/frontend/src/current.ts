/** Which kernel the user looks at: that of the notebook or console in front. */

import { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import { ISessionContext } from '@jupyterlab/apputils';
import { ISignal, Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

export class Current {
  kernel = '';

  private readonly _changed = new Signal<this, void>(this);
  private session: ISessionContext | null = null;

  constructor(app: JupyterFrontEnd) {
    const shell = app.shell as Partial<ILabShell> & JupyterFrontEnd.IShell;
    shell.currentChanged?.connect(() => this.look(shell.currentWidget));
    void app.restored.then(() => this.look(shell.currentWidget));
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  private look(widget: Widget | null): void {
    const session = sessionOf(widget);
    if (session !== this.session) {
      this.session?.kernelChanged.disconnect(this.read, this);
      this.session = session;
      session?.kernelChanged.connect(this.read, this);
    }
    this.read();
  }

  private read(): void {
    const kernel = this.session?.session?.kernel?.id ?? '';
    if (kernel !== this.kernel) {
      this.kernel = kernel;
      this._changed.emit();
    }
  }
}

function sessionOf(widget: unknown): ISessionContext | null {
  const found = widget as { sessionContext?: ISessionContext; content?: { sessionContext?: ISessionContext } } | null;
  return found?.sessionContext ?? found?.content?.sessionContext ?? null;
}
