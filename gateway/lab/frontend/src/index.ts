/**
 * JupyterLab's face of the gateway. It starts where the server says that there is a gateway (see `gateway.lab.pages`), and otherwise
 * does nothing at all: no request, no item, no error.
 */

import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStatusBar } from '@jupyterlab/statusbar';
import css from '../style/index.css';
import { Current } from './current';
import { Gateway } from './gateway';
import { Mine } from './mine';
import { Notices } from './notices';
import { icon, Panel } from './panel';
import { StatusInToolbar, StatusItem } from './status';
import { cycle, TagsInToolbar } from './tags';

const OPTION = 'elasticGateway';
const TAG = 'elastic-gateway:cycle-tag';
const SHOW = 'elastic-gateway:show';

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-elastic-gateway:plugin',
  description: 'Shows which kernel has which GPU, who waits, and what runs on many workers.',
  autoStart: true,
  optional: [IStatusBar, ILayoutRestorer, ICommandPalette, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    statusBar: IStatusBar | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    notebooks: INotebookTracker | null
  ) => {
    if (!PageConfig.getOption(OPTION)) {
      return;
    }
    document.head.append(Object.assign(document.createElement('style'), { textContent: css }));
    const gateway = new Gateway(app.serviceManager.serverSettings);
    const current = new Current(app);
    const mine = new Mine(gateway, app.serviceManager.sessions);
    const panel = new Panel(gateway, current, mine);
    new Notices(gateway, mine);
    app.shell.add(panel, 'left', { rank: 600, type: 'GPUs' });
    restorer?.add(panel, panel.id);
    gateway.changed.connect(() => gateway.health === 'absent' && panel.dispose()); // behind an Enterprise Gateway, say
    const there = () => !panel.isDisposed;
    app.commands.addCommand(SHOW, { label: 'Show GPUs', icon, isVisible: there, isEnabled: there, execute: () => app.shell.activateById(panel.id) });
    palette?.addItem({ command: SHOW, category: 'GPU' });
    const item = () => new StatusItem(gateway, current, () => void app.commands.execute(SHOW));
    if (statusBar) {
      statusBar.registerStatusItem(plugin.id, { item: item(), align: 'left', rank: 10 });
    } else {
      app.docRegistry.addWidgetExtension('Notebook', new StatusInToolbar(item));
    }
    if (notebooks) {
      app.docRegistry.addWidgetExtension('Notebook', new TagsInToolbar(gateway));
      app.commands.addCommand(TAG, {
        label: 'Change whether Cells Need a GPU (auto, gpu, cpu)',
        isEnabled: () => notebooks.currentWidget !== null && gateway.picture.leases.has(current.kernel),
        execute: () => notebooks.currentWidget && cycle(notebooks.currentWidget)
      });
      palette?.addItem({ command: TAG, category: 'GPU' });
      app.contextMenu.addItem({ command: TAG, selector: '.jp-Notebook .jp-CodeCell', rank: 20 });
    }
    gateway.open();
  }
};

export default plugin;
