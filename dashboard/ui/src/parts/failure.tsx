import { Alert, Button, Container } from '@mantine/core';
import { useRouteError } from 'react-router-dom';

/** What is shown when a page broke, which is a fault of ours. */
export function Failure() {
  const err = useRouteError();
  return (
    <Container py="xl">
      <Alert color="red" title="This page broke" role="alert">
        {err instanceof Error ? err.message : String(err)}
        <br />
        <Button mt="sm" variant="default" onClick={() => location.reload()}>
          Load it again
        </Button>
      </Alert>
    </Container>
  );
}
