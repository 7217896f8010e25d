/** The tags `gpu` and `cpu` by a click: a choice in the notebook's toolbar for the chosen cells, and a mark at each cell that has one. */

import { Cell } from '@jupyterlab/cells';
import { DocumentRegistry } from '@jupyterlab/docregistry';
import { INotebookModel, NotebookPanel } from '@jupyterlab/notebook';
import { ReactWidget } from '@jupyterlab/ui-components';
import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import * as React from 'react';
import { Gateway } from './gateway';
import { Need, need, NEEDS, next, tagged } from './tagging';

const WORDS: Record<Need, string> = { auto: 'GPU: auto', gpu: 'GPU: yes', cpu: 'GPU: no' };
const SOON = 200; // milliseconds
const TITLE = 'Whether the chosen cells need a GPU (cell tags gpu and cpu). Auto: the gateway tells from the code.';

/** Puts the choice into each notebook's toolbar. */
export class TagsInToolbar implements DocumentRegistry.IWidgetExtension<NotebookPanel, INotebookModel> {
  constructor(private readonly gateway: Gateway) {}

  createNew(panel: NotebookPanel): IDisposable {
    const choice = new Choice(panel, this.gateway);
    panel.toolbar.insertAfter('cellType', 'elasticGpu', choice);
    return new DisposableDelegate(() => choice.dispose());
  }
}

class Choice extends ReactWidget {
  private timer = 0;

  constructor(
    private readonly panel: NotebookPanel,
    private readonly gateway: Gateway
  ) {
    super();
    this.addClass('jp-ElasticChoice');
    const { content } = panel;
    content.activeCellChanged.connect(this.look, this);
    content.selectionChanged.connect(this.look, this);
    content.modelContentChanged.connect(this.lookSoon, this);
    panel.sessionContext.kernelChanged.connect(this.look, this);
    gateway.changed.connect(this.heard, this);
    this.hide();
    void panel.context.ready.then(() => this.look());
  }

  override dispose(): void {
    window.clearTimeout(this.timer);
    this.gateway.changed.disconnect(this.heard, this);
    super.dispose();
  }

  protected override render(): React.JSX.Element {
    const cell = this.panel.content.activeCell;
    return (
      <select
        className="jp-ElasticChoice-select"
        aria-label="GPU need of the chosen cells"
        title={TITLE}
        value={cell ? need(cell.model.getMetadata('tags')) : 'auto'}
        disabled={cell?.model.type !== 'code'}
        onChange={event => {
          choose(this.panel, event.target.value as Need);
          this.look();
        }}
      >
        {NEEDS.map(each => (
          <option key={each} value={each}>
            {WORDS[each]}
          </option>
        ))}
      </select>
    );
  }

  /** Whether the kernel is one that leases GPUs may have become known. */
  private heard(): void {
    if (this.isHidden === this.leases()) {
      this.look();
    }
  }

  /** Typing is no reason to look at all cells each time. */
  private lookSoon(): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.look(), SOON);
  }

  private look(): void {
    if (this.isDisposed || this.panel.isDisposed) {
      return;
    }
    this.setHidden(!this.leases());
    this.panel.content.widgets.forEach(mark);
    this.update();
  }

  private leases(): boolean {
    return this.gateway.picture.leases.has(this.panel.sessionContext.session?.kernel?.id ?? '');
  }
}

/** The next of auto, gpu, cpu, for the chosen cells. */
export function cycle(panel: NotebookPanel): void {
  choose(panel, next(need(panel.content.activeCell?.model.getMetadata('tags'))));
}

function choose(panel: NotebookPanel, wish: Need): void {
  const { content } = panel;
  for (const cell of content.widgets) {
    if (cell.model.type === 'code' && content.isSelectedOrActive(cell)) {
      const tags = tagged(cell.model.getMetadata('tags'), wish);
      if (tags.length) {
        cell.model.setMetadata('tags', tags);
      } else {
        cell.model.deleteMetadata('tags');
      }
      mark(cell);
    }
  }
}

function mark(cell: Cell): void {
  const found = need(cell.model.getMetadata('tags'));
  if (found === 'auto' || cell.model.type !== 'code') {
    delete cell.node.dataset['elasticNeed'];
  } else {
    cell.node.dataset['elasticNeed'] = found;
  }
}
