import { Anchor } from '@mantine/core';
import { Link, useLocation } from 'react-router-dom';
import { Empty } from '../parts/bits';

export function Component() {
  const { pathname } = useLocation();
  return (
    <Empty title="There is no such page">
      {pathname} leads nowhere.{' '}
      <Anchor component={Link} to="/">
        Go to the overview
      </Anchor>
    </Empty>
  );
}
