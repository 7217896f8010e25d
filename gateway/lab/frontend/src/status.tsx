/** The status item: what the kernel in front has of a GPU. A click opens the panel. */

import { DocumentRegistry } from '@jupyterlab/docregistry';
import { INotebookModel, NotebookPanel } from '@jupyterlab/notebook';
import { ReactWidget } from '@jupyterlab/ui-components';
import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import * as React from 'react';
import { Current } from './current';
import { Gateway } from './gateway';
import { Shown, shown } from './phase';
import { waiting } from './picture';

export class StatusItem extends ReactWidget {
  private timer = 0;

  constructor(
    private readonly gateway: Gateway,
    private readonly current: Current,
    private readonly clicked: () => void
  ) {
    super();
    this.addClass('jp-ElasticStatus');
    gateway.changed.connect(this.look, this);
    current.changed.connect(this.look, this);
  }

  /** Null: there is nothing to say of this kernel. */
  get shown(): Shown | null {
    const lease = this.gateway.picture.leases.get(this.current.kernel);
    if (!lease) {
      return null;
    }
    if (this.gateway.health === 'away') {
      const title = 'The gateway does not answer. Its kernels go on, and this page connects again by itself.';
      return { kind: 'alarm', text: 'GPU gateway away', title, ticks: false };
    }
    return shown(lease, waiting(this.gateway.picture, lease.kernel_id), this.gateway.now());
  }

  override dispose(): void {
    window.clearTimeout(this.timer);
    this.gateway.changed.disconnect(this.look, this);
    this.current.changed.disconnect(this.look, this);
    super.dispose();
  }

  private look(): void {
    this.update();
  }

  protected override render(): React.JSX.Element | null {
    const now = this.shown;
    window.clearTimeout(this.timer);
    if (!now) {
      return null;
    }
    if (now.ticks) {
      this.timer = window.setTimeout(() => this.update(), 1000);
    }
    const [phase] = now.text.split(' · ');
    return (
      <>
        <button
          type="button"
          className="jp-ElasticStatus-button"
          data-kind={now.kind}
          title={now.title}
          aria-label={`GPU of this kernel: ${now.text}. ${now.title}`}
          onClick={this.clicked}
        >
          <span className="jp-ElasticDot" data-kind={now.kind} aria-hidden="true" />
          <span>{now.text}</span>
        </button>
        <span className="jp-ElasticHidden" role="status">
          {phase}
        </span>
      </>
    );
  }
}

/** Puts the item into each notebook's toolbar, for a front end without a status bar: Notebook 7. */
export class StatusInToolbar implements DocumentRegistry.IWidgetExtension<NotebookPanel, INotebookModel> {
  constructor(private readonly make: () => StatusItem) {}

  createNew(panel: NotebookPanel): IDisposable {
    const item = this.make();
    panel.toolbar.addItem('elasticStatus', item);
    return new DisposableDelegate(() => item.dispose());
  }
}
