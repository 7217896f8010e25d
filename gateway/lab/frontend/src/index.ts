/**
 * JupyterLab's face of the gateway. It starts where the server says that there is a gateway (see `gateway.lab.pages`), and otherwise
 * does nothing at all: no request, no item, no error.
 */

import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { PageConfig } from '@jupyterlab/coreutils';
import { IStatusBar } from '@jupyterlab/statusbar';
import css from '../style/index.css';
import { Current } from './current';
import { Gateway } from './gateway';
import { StatusItem } from './status';

const OPTION = 'elasticGateway';

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-elastic-gateway:plugin',
  description: 'Shows which kernel has which GPU, who waits, and what runs on many workers.',
  autoStart: true,
  optional: [IStatusBar],
  activate: (app: JupyterFrontEnd, statusBar: IStatusBar | null) => {
    if (!PageConfig.getOption(OPTION)) {
      return;
    }
    document.head.append(Object.assign(document.createElement('style'), { textContent: css }));
    const gateway = new Gateway(app.serviceManager.serverSettings);
    const current = new Current(app);
    if (statusBar) {
      const item = new StatusItem(gateway, current, () => undefined);
      statusBar.registerStatusItem(plugin.id, { item, align: 'left', rank: 10 });
    }
    gateway.open();
  }
};

export default plugin;
